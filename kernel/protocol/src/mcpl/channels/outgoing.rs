//! `channels/outgoing/*`: what observers of a channel are told of what goes out (MCPL §14.3).
