//! Every kind of frame of a link: what is read is written and read again the same.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mgp_protocol::federation::call::{CallHeader, CallRejection, owner_refusal, timings};
use mgp_protocol::federation::control::Control;
use mgp_protocol::federation::hello::{Hello, NodeName};
use mgp_protocol::federation::{assertion, frames, logs, pairing, sync, tool_index};

macro_rules! stable {
    ($kind:ty, $bytes:expr) => {
        if let Ok(read) = <$kind>::decode($bytes) {
            let written = read.encode();
            let again = <$kind>::decode(&written).expect("what was written is read");
            assert_eq!(again.encode(), written);
        }
    };
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else {
        return;
    };
    match kind % 16 {
        0 => stable!(Hello, bytes),
        1 => stable!(Control, bytes),
        2 => stable!(CallHeader, bytes),
        3 => stable!(CallRejection, bytes),
        4 => stable!(logs::LogEntries, bytes),
        5 => stable!(pairing::PairingMessage, bytes),
        6 => drop(pairing::WelcomeBundle::decode(bytes)),
        7 => stable!(sync::SyncOpening, bytes),
        8 => stable!(tool_index::IndexPage, bytes),
        9 => stable!(tool_index::IndexReport, bytes),
        10 => stable!(tool_index::ServerRecord, bytes),
        11 => stable!(tool_index::ToolRecord, bytes),
        12 => drop((
            owner_refusal::decode(bytes),
            timings::CallTimings::decode(bytes),
        )),
        13 => drop(assertion::Assertion::decode(bytes)),
        14 => {
            let packet = Bytes::copy_from_slice(bytes);
            if let Some((head, payload)) = frames::PacketHeader::parse(&packet) {
                assert_eq!(
                    frames::PacketHeader::parse(&head.to_packet(&payload)),
                    Some((head, payload))
                );
            }
        }
        _ => {
            if let Ok(text) = std::str::from_utf8(bytes)
                && let Ok(name) = NodeName::parse(text)
            {
                assert_eq!(NodeName::parse(name.as_str()).ok(), Some(name));
            }
        }
    }
});
