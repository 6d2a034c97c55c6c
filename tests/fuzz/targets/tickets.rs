//! A ticket is read whatever was typed, and one that is read is written and read again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_engine::cluster::pairing::PairingTicket;

fuzz_target!(|text: &str| {
    if let Ok(ticket) = PairingTicket::parse(text) {
        let again = PairingTicket::parse(&ticket.render()).expect("what is written is read");
        assert_eq!(again.render(), ticket.render());
    }
});
