//! Who answers what servers ask a model (MCPL §11).
