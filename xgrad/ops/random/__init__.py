"""Random numbers: keys, factories and samplers, dropout."""
