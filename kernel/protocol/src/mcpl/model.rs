//! `model/info`: which model is in use (MCPL §12).
