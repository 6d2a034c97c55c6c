//! A stream of events says the same however it is cut into pieces, and keeps no more than it may.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mgp_transports::sse::Decoder;

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let most = 64;
    let read = |size: usize| {
        let mut decoder = Decoder::new(most);
        let mut events = Vec::new();
        for piece in bytes.chunks(size) {
            decoder.push(Bytes::copy_from_slice(piece));
            events.extend(decoder.by_ref().map(|event| format!("{event:?}")));
        }
        events
    };
    assert_eq!(read(usize::from(size).max(1)), read(bytes.len().max(1)));
});
