//! The HTTP door: how requests come in, what they must say, and what they may hold.

mod auth;
mod bodies;
mod crowd;
mod half_sent;
mod handed_on;
mod handshakes;
mod headers;
mod icons;
mod old_style;
mod replay;
mod server_card;
mod sessions;
mod shares;
mod strangers;
mod unread;
mod versions;
