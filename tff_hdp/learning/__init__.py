"""One file per system; each builds a `tff.learning.templates.LearningProcess`."""
