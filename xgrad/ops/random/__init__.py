"""xgrad.ops.random: operators with random numbers (rand, normal, multinomial, dropout, ...), and their keys."""
