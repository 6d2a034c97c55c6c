//! What is read of a message that was cut, is read of the whole one, too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_json::lookalike::find_lookalike;
use mgp_json::{find_duplicate, members};
use mgp_protocol::jsonrpc::partial_message::{self, PartialMessage};

fuzz_target!(|bytes: &[u8]| {
    let cut = PartialMessage::scan(bytes);
    let _ = (
        cut.id(),
        cut.has_method(),
        cut.is_response(),
        partial_message::find_trailing_id(bytes),
        mgp_json::partial::first_member(bytes, "name"),
    );
    let whole = std::str::from_utf8(bytes).ok().and_then(members);
    let Some(whole) = whole else {
        return;
    };
    let mut names: Vec<_> = whole.iter().map(|(name, _)| &**name).collect();
    if find_duplicate(&mut names).is_some() {
        return;
    }
    // A name that only looks like `method` counts, too, and may be the one that is found: what has one is no message
    // that is taken.
    if (whole.iter()).any(|(name, _)| find_lookalike(name, &["method"]).is_some()) {
        return;
    }
    let method = whole.iter().find(|(name, _)| name == "method");
    if let (Some(cut), Some((_, method))) = (cut.method(), method) {
        assert_eq!(mgp_json::unquote(method.get()).as_deref(), Some(cut));
    }
});
