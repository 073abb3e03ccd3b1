"""`rmq topic`, `rmq group` and the other nouns: verbs in front of mqadmin's names."""
