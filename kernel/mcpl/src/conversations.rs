//! Ids of inferences and conversations, so that those of two agents never meet (MCPL §11).
