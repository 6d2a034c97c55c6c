//! `[mcpl]`: checkpoints and channels.
