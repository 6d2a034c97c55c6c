//! Two endpoints in one process, over loopback.

mod bad_wire;
mod calls;
mod control;
mod crowd;
mod ends;
mod handshakes;
mod loss;
mod packets;
mod pairing;
mod relay;
mod scene;
