//! Nothing that an issuer or a stranger writes passes without the one signature that the keys make.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_engine::doors::bearer::{Algorithm, BearerPolicy, IssuerKeys, verify};

// Keys of an issuer, a line feed, and a token.
fuzz_target!(|text: &str| {
    let (keys, token) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(keys) = IssuerKeys::parse(keys.as_bytes()) else {
        return;
    };
    let policy = BearerPolicy {
        issuer: "https://issuer.example".into(),
        algorithms: Algorithm::ALL.map(|(_, algorithm)| algorithm).to_vec(),
        agent_claim: "sub".into(),
        scopes: vec!["mcp".into()],
        groups: Default::default(),
    };
    let audiences = ["https://door.example/mcp".to_owned()];
    let judged = |token: &str| verify(token, &keys, &policy, &audiences, 1_800_000_000_000);
    // The seed was signed with a key that nobody has any more: what passes is the seed under the seed's key.
    if judged(token).is_ok() {
        assert!(token.starts_with("eyJ"), "{token}");
        let (signed, _) = token.rsplit_once('.').expect("it has parts");
        assert!(judged(signed).is_err() && judged(&format!("{signed}.")).is_err());
        let one_less = IssuerKeys::parse(br#"{"keys":[]}"#).expect("no keys are keys");
        assert!(verify(token, &one_less, &policy, &audiences, 1_800_000_000_000).is_err());
        let other = ["https://door.example/mcp/other".to_owned()];
        assert!(verify(token, &keys, &policy, &other, 1_800_000_000_000).is_err());
    }
});
