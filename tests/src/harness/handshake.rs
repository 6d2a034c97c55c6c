//! How a client of the handshake eras begins.

/// What a full client declares.
pub const FULL: &str =
    r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;

/// The `initialize` request, with id 0.
#[must_use]
pub fn initialize(version: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"mgp-tests","version":"1"}}}}}}"#
    )
}
