"""Claims as predicates on records, and the rule that judges them."""
