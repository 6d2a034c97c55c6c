//! What servers and authorization servers say of themselves, and what they answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mgp_engine::servers::login::authorization::ExpectedResponse;
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::discovery::{AuthorizationServer, ResourceMetadata};
use mgp_engine::servers::login::token::IssuedTokens;
use url::Url;

fuzz_target!(|bytes: &[u8]| {
    let server = Url::parse("https://h.example/mcp").expect("it is one");
    if let Ok(resource) = ResourceMetadata::parse(bytes, "https://h.example/m", &server) {
        let named = Url::parse(&resource.resource).expect("it is compared as an address");
        assert_eq!(named.origin(), server.origin());
    }
    if let Ok(found) = AuthorizationServer::parse(bytes, "https://as/m", "https://as") {
        assert_eq!(found.issuer, "https://as");
        assert!(!found.token_endpoint.starts_with("http://as"));
        let _ = (found.check_sign_in_page(false), found.check_pkce(false));
    }
    let _ = IssuedTokens::parse(bytes, 1, false);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = LoginChallenge::parse([text]);
        let awaited = ExpectedResponse {
            state: "s",
            issuer: "https://as",
            sends_issuer: true,
        };
        if awaited.parse_code(text).is_ok() {
            assert!(text.contains("state"), "{text}");
        }
    }
});
