//! Inference that servers ask for (MCPL §11), and `model/info` (§12).
