"""Operators with random numbers: rand, normal, multinomial, bernoulli, dropout and their like, and their keys."""
