//! `channels/*`: places where people and programs talk (MCPL §14).

pub mod outgoing;
