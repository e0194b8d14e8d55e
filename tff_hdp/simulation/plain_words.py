"""An account's rows in sentences for people who do not know its terms."""

import math
from collections.abc import Iterable, Mapping

from tff_hdp.privacy import AccountRow
from tff_hdp.privacy.table import code_of, explained, statements

# An epsilon above it is called a weak promise.
WEAK = 10.0
_OBSERVERS = {
    "super_node": "the client's own super-node, which gets its zone's updates, or by "
    "secure aggregation their sum",
    "aggregator": "the aggregator, which gets what those below it send, or by secure "
    "aggregation the sum of it",
    "released_model": "whoever gets the model",
    "fellow_super_node": "a super-node that is not above the client, which gets the "
    "model and knows its own noise",
    "fellow_client": "another client, which gets the model and knows when it takes "
    "part, and its own noise if it adds any",
}
_KINDS = {
    "ldp": "that adds noise to its own update",
    "hdp": "that relies on its super-node, or those above, to add noise",
    "trusting": "that relies on the server to add noise",
}
_HAD = {
    "add_or_remove": "had this client not been there",
    "zero_out": "had this client's updates been zeros",
    "replace_one": "had another client's data stood in this one's place",
}
# What a statement of a code comes to; those of code O differ, and stand as they are.
_PLAIN: Mapping[str, str] = {
    "A": "What was seen is compared with what would have been seen without the client.",
    "Z": "What was seen is compared with what would have been seen had the client sent "
    "nothing but zeros.",
    "R": "What was seen is compared with what would have been seen with another "
    "client's data in place of this one's.",
    "M": "What was seen is compared in different ways in different rounds.",
    "E": "Every client takes part in every round: it cannot hide by staying away.",
    "Ph": "In every round chance decides who takes part. The observer is not told who "
    "did, and part of the protection rests on that.",
    "Pr": "In every round chance decides who takes part. The account grants that the "
    "observer finds out who did.",
    "Fh": "In every round chance picks a fixed number of clients. The observer is not "
    "told whom, and part of the protection rests on that.",
    "Fr": "In every round chance picks a fixed number of clients. The account grants "
    "that the observer finds out whom.",
    "N": "No noise, or not enough, protects what this observer sees.",
    "Ns": "Nothing that this client sends reaches what this observer sees.",
    "H": "The promise holds only if the observer does not learn who takes part in "
    "which round.",
    "K": "The promise holds even if the observer learns who takes part in which round.",
    "V": "Who takes part may be hidden, but the promise does not rest on it.",
    "C": "How many clients take part and add noise changes by chance; what is counted "
    "is that, not the average.",
    "D": "Clients may drop out of a round, as long as neither their data nor other "
    "clients decide it.",
    "L": "A zone with too few clients is left out of a round; what this may show is "
    "counted.",
    "W": "To exchange a client for another changes a sum twice as much as to leave one "
    "out; that is counted.",
    "S": "Sums are computed so that nobody sees a part of them; the promise rests on "
    "that computation being kept to.",
    "X": "Some parties share what they know with the observer, or it knows a part of "
    "the noise; what it knows protects nobody and is not counted.",
    "Y": "Computers draw noise with limited precision; what that may cost is counted.",
    "U": "Some of the noise that was added is not counted, to be safe.",
    "T": "Super-nodes are trusted to add the noise of clients that are missing.",
    "J": "How much one client may change the model was learned from the clients too; "
    "the promise covers that.",
    "Cp": "The size to which clients' updates are cut was measured on their data; the "
    "promise does not cover what that tells.",
    "G": "Epsilon was computed by a numerical method that rounds up: the true one is "
    "not larger.",
    "B": "There may be rounds without noise, or with little of it; their probability "
    "is a part of delta.",
    "Q": "The rounds' epsilons are simply added up, and the bound cannot fail: it does "
    "not need a delta.",
    "I": "One of the two methods of computing epsilon gives no number here.",
}


def epsilon_against(rows: Iterable[AccountRow], observer: str) -> float:
    """Of the client worst off, by the tighter of RDP and PLD.

    Infinity without a guarantee, or a row.
    """
    own = (row.epsilon() for row in rows if row.observer == observer)
    return max(own, default=math.inf)


def seen_by(row: AccountRow) -> str:
    """A row's observer, with its level if it is a super-node above the zones'."""
    return f"{row.observer}, level {row.level}" if _is_upper(row) else row.observer


def promise(row: AccountRow, observers: Mapping[str, str]) -> str:
    """What a row promises to whom, against whom.

    Args:
      row: Of an account.
      observers: What observers of its system alone are (`RunConfig.observers`).
    """
    zone = "" if row.zone is None else f" of zone {row.zone}"
    who = f"A client{zone} {_KINDS.get(row.client_kind, row.client_kind)}"
    observer = (_OBSERVERS | observers).get(row.observer, row.observer)
    if _is_upper(row):
        observer = f"the super-node of level {row.level} above the client, which gets "
        observer += f"what those of level {row.level - 1} send"
    epsilon = row.epsilon()
    if epsilon == math.inf:
        return f"{who} is promised nothing against {observer}."
    method = "PLD" if epsilon == row.epsilon_pld else "RDP"
    had = _HAD.get(row.neighbours, f"for {row.neighbours} neighbours")
    factor = f"{math.exp(epsilon):,.4g}" if epsilon < 300 else "e to that power"
    return (
        f"{who} is promised epsilon = {epsilon:.4g} at delta = {row.delta:g} (by "
        f"{method}) against {observer} [{seen_by(row)}]: whatever it sees would have "
        f"been at most {factor} times as likely, or as unlikely, {had}, but for a "
        f"probability of {row.delta:g}."
    )


def conditions(row: AccountRow) -> list[tuple[str, str]]:
    """All that a row rests on.

    Returns:
      Of each statement a sentence in plain words, "" if it has none, and the
      statement in the account's terms.
    """
    fields = row.to_dict()
    return [
        (_PLAIN.get(code_of(statement), ""), words)
        for statement, words in zip(statements(fields), explained(fields), strict=True)
    ]


def _is_upper(row: AccountRow) -> bool:
    return row.observer == "super_node" and row.level > 1
