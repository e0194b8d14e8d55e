"""HDP: noise at clients, super-nodes or the server (Chandrasekaran et al.)."""
