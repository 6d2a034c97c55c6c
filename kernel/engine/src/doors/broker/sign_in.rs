//! A sign-in under way: what a client asked for, from its authorization request until the person comes back from the
//! provider. The browser stores it, sealed: unknown callers leave nothing in the kernel, and only the browser that
//! began a sign-in can continue it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::clients::Client;
use super::params::Params;
use super::{OauthError, sanitize_line};
use crate::callers::seal::{Purpose, SealKey};
use crate::doors::agent_registry::TokenDigest;
use crate::servers::login::pkce::CodeVerifier;

/// How long a person may take, in milliseconds: with a password and a second factor.
pub const SIGN_IN_LIFETIME_MS: u64 = 600_000;
/// Sign-ins of one browser at a time; a further one replaces another. Each is a cookie of at most 3 KiB, and browsers and
/// servers bound the headers of a request.
pub const SLOTS: u8 = 4;
/// Longest `state` of a client, in bytes.
const STATE_BYTES_MAX: usize = 512;
/// Longest resource, in bytes.
const RESOURCE_BYTES_MAX: usize = 512;
/// Longest parameter that is repeated in a message, in characters.
const QUOTED_CHARS_MAX: usize = 100;

/// A valid authorization request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationRequest {
    redirect_uri: String,
    state: Option<String>,
    challenge: String,
    resource: String,
}

impl AuthorizationRequest {
    /// Checks the request of a client for one of the `resources`.
    ///
    /// # Errors
    /// [`OauthError`]. It is shown to the person and not sent to the client: no person has agreed to the client yet, so its
    /// redirect URI is not trusted (RFC 9700, section 4.11.2).
    pub fn parse(
        params: &Params,
        client: &Client,
        resources: &[String],
    ) -> Result<Self, OauthError> {
        let redirect_uri = params.require("redirect_uri")?;
        if !client.has_redirect_uri(redirect_uri) {
            return Err(OauthError::invalid_request(
                "`redirect_uri` is none of those that this client registered",
            ));
        }
        if params.get("request").is_some() || params.get("request_uri").is_some() {
            return Err(OauthError::new(
                "request_not_supported",
                "request objects are not supported",
            ));
        }
        if params.require("response_type")? != "code" {
            let why = "`response_type` is `code`";
            return Err(OauthError::new("unsupported_response_type", why));
        }
        if !matches!(params.get("response_mode"), None | Some("query")) {
            return Err(OauthError::invalid_request("`response_mode` is `query`"));
        }
        let challenge = params.require("code_challenge")?;
        let is_hash = URL_SAFE_NO_PAD
            .decode(challenge)
            .is_ok_and(|bytes| bytes.len() == 32);
        if params.require("code_challenge_method")? != "S256" || !is_hash {
            return Err(OauthError::invalid_request("PKCE with `S256` is required"));
        }
        let state = params.get("state");
        let is_state = |state: &str| {
            state.len() <= STATE_BYTES_MAX && state.bytes().all(|b| matches!(b, b' '..=b'~'))
        };
        if !state.is_none_or(is_state) {
            return Err(OauthError::invalid_request(
                "`state` has at most 512 visible characters",
            ));
        }
        Ok(Self {
            redirect_uri: redirect_uri.to_owned(),
            state: state.map(ToOwned::to_owned),
            challenge: challenge.to_owned(),
            resource: match_resource(params.get("resource"), resources)?,
        })
    }
}

/// The resource that a token is for (RFC 8707): one of these, or an endpoint of one server or set below it; the first one
/// if none is named. Whether the server exists is not revealed.
///
/// # Errors
/// `invalid_target`.
pub fn match_resource(asked: Option<&str>, resources: &[String]) -> Result<String, OauthError> {
    let Some(asked) = asked else {
        return Ok(resources.first().cloned().unwrap_or_default());
    };
    let plain = asked.strip_suffix('/').unwrap_or(asked);
    let is_name = |part: &str| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        part.bytes().all(is_plain) && !matches!(part, "" | "." | "..")
    };
    let is_below = |base: &String| {
        let rest = plain.strip_prefix(base.as_str());
        rest.is_some_and(|rest| match rest.strip_prefix('/') {
            Some(path) => path.split('/').count() <= 2 && path.split('/').all(is_name),
            None => rest.is_empty(),
        })
    };
    if plain.len() <= RESOURCE_BYTES_MAX && resources.iter().any(is_below) {
        Ok(plain.to_owned())
    } else {
        let quoted = sanitize_line(asked, QUOTED_CHARS_MAX);
        let why = format!("`resource` {quoted:?} is not served here");
        Err(OauthError::new("invalid_target", why))
    }
}

/// How far a sign-in is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The person is asked whether the client may act for them.
    Consent,
    /// The person agreed and is at the provider.
    Provider,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Consent => "consent",
            Self::Provider => "provider",
        }
    }
}

/// A sign-in. Its secrets are derived from the seed, which only this record contains.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    seed: String,
    slot: u8,
    expires_ms: u64,
    /// The client that began it.
    pub client: TokenDigest,
    /// The displayed name of the client.
    pub client_name: String,
    /// The redirect URI.
    pub redirect_uri: String,
    /// The client's `state`.
    pub state: Option<String>,
    /// The client's PKCE challenge.
    pub challenge: String,
    /// The resource.
    pub resource: String,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn")
            .field("client_name", &self.client_name)
            .finish_non_exhaustive()
    }
}

/// The browser shows no sign-in that it began and that is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this browser has begun no such sign-in, or it took longer than ten minutes; begin again in the client"
)]
pub struct UnknownSignIn;

impl SignIn {
    /// A sign-in of this client, to be agreed to. `seed` is random.
    #[must_use]
    pub fn begin(
        request: AuthorizationRequest,
        client: &Client,
        seed: [u8; 32],
        now_ms: u64,
    ) -> Self {
        Self {
            slot: seed[0] % SLOTS,
            seed: URL_SAFE_NO_PAD.encode(seed),
            expires_ms: now_ms + SIGN_IN_LIFETIME_MS,
            client: TokenDigest::new(&client.id),
            client_name: client.name.clone(),
            redirect_uri: request.redirect_uri,
            state: request.state,
            challenge: request.challenge,
            resource: request.resource,
        }
    }

    /// The same after the person agreed, with new secrets: who saw the page knows nothing of what is sent to the provider.
    #[must_use]
    pub fn approve(self, seed: [u8; 32]) -> Self {
        Self {
            seed: URL_SAFE_NO_PAD.encode(seed),
            ..self
        }
    }

    fn derive(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, self.seed.as_bytes())
    }

    fn text(&self, context: &str) -> String {
        format!(
            "{}{}",
            self.slot,
            URL_SAFE_NO_PAD.encode(self.derive(context))
        )
    }

    /// Identifies this sign-in in the form of the page and at the provider; other browsers do not know it.
    #[must_use]
    pub fn key(&self) -> String {
        self.text("mgp 2026-11 broker sign-in: key")
    }

    /// The nonce of the ID token.
    #[must_use]
    pub fn nonce(&self) -> String {
        self.text("mgp 2026-11 broker sign-in: nonce")
    }

    /// The PKCE secret at the provider.
    #[must_use]
    pub fn verifier(&self) -> CodeVerifier {
        CodeVerifier::from_random(self.derive("mgp 2026-11 broker sign-in: verifier"))
    }

    /// The number of its cookie.
    #[must_use]
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// The number of the cookie that a key belongs to.
    #[must_use]
    pub fn slot_of_key(key: &str) -> Option<u8> {
        let slot = key.as_bytes().first()?.checked_sub(b'0')?;
        (slot < SLOTS).then_some(slot)
    }

    /// The value of the cookie.
    #[must_use]
    pub fn seal(&self, stage: Stage, seal: &SealKey) -> String {
        seal.seal(Purpose::BrokerSignIn, stage.name(), self)
    }

    /// Opens a cookie of this stage, for the sign-in with this key.
    ///
    /// # Errors
    /// [`UnknownSignIn`].
    pub fn open(
        cookie: &str,
        stage: Stage,
        key: &str,
        seal: &SealKey,
        now_ms: u64,
    ) -> Result<Self, UnknownSignIn> {
        let opened = seal.open::<Self>(Purpose::BrokerSignIn, stage.name(), cookie);
        let sign_in = opened.map_err(|_| UnknownSignIn)?;
        let same = TokenDigest::new(&sign_in.key()).matches(TokenDigest::new(key));
        (same && sign_in.expires_ms > now_ms)
            .then_some(sign_in)
            .ok_or(UnknownSignIn)
    }

    /// Where the browser is sent with an answer (RFC 6749, section 4.1.2; `iss` of RFC 9207).
    #[must_use]
    pub fn answer_url(&self, issuer: &str, answer: &[(&str, &str)]) -> String {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(answer);
        if let Some(state) = &self.state {
            form.append_pair("state", state);
        }
        form.append_pair("iss", issuer);
        let separator = if self.redirect_uri.contains('?') {
            '&'
        } else {
            '?'
        };
        format!("{}{separator}{}", self.redirect_uri, form.finish())
    }
}

/// The consumed sign-ins: the answer of the provider counts once.
#[derive(Debug, Default)]
pub struct ConsumedSignIns {
    /// In the order of their consumption, with the time from which they are expired.
    keys: std::collections::VecDeque<(TokenDigest, u64)>,
}

/// Most remembered sign-ins. At the bound the oldest is forgotten: its code at the provider was used, and the provider
/// accepts that once.
const CONSUMED_MAX: usize = 4096;

impl ConsumedSignIns {
    /// Consumes a sign-in; false if it was consumed before.
    pub fn consume(&mut self, sign_in: &SignIn, now_ms: u64) -> bool {
        while self.keys.front().is_some_and(|(_, end)| *end <= now_ms) {
            self.keys.pop_front();
        }
        let key = TokenDigest::new(&sign_in.key());
        if self.keys.iter().any(|(consumed, _)| *consumed == key) {
            return false;
        }
        if self.keys.len() >= CONSUMED_MAX {
            self.keys.pop_front();
        }
        self.keys.push_back((key, sign_in.expires_ms));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn client() -> Client {
        Client {
            id: "c".into(),
            name: "Desk".into(),
            redirect_uris: vec![
                "http://127.0.0.1/cb".into(),
                "https://a.example/cb?x=1".into(),
            ],
            document_host: None,
        }
    }

    fn parse(change: &[(&str, &str)]) -> Result<AuthorizationRequest, OauthError> {
        let challenge = URL_SAFE_NO_PAD.encode([1; 32]);
        let mut all = std::collections::BTreeMap::from([
            ("redirect_uri", "http://127.0.0.1:9/cb"),
            ("response_type", "code"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", "st"),
        ]);
        all.extend(change.iter().copied());
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(all);
        let params = Params::parse(&form.finish())?;
        AuthorizationRequest::parse(&params, &client(), &["https://h/mcp".into()])
    }

    fn sign_in(seed: u8) -> SignIn {
        SignIn::begin(parse(&[]).unwrap(), &client(), [seed; 32], NOW)
    }

    /// EXT-222: without PKCE with S256 and an exact redirect URI nothing begins.
    #[test]
    fn authorization_request_needs_pkce_and_an_exact_redirect_uri() {
        assert!(parse(&[]).is_ok());
        for (change, error) in [
            (
                ("redirect_uri", "http://127.0.0.1:9/other"),
                "invalid_request",
            ),
            (("redirect_uri", ""), "invalid_request"),
            (("response_type", "token"), "unsupported_response_type"),
            (("response_mode", "fragment"), "invalid_request"),
            (("code_challenge", ""), "invalid_request"),
            (("code_challenge", "short"), "invalid_request"),
            (("code_challenge_method", "plain"), "invalid_request"),
            (("code_challenge_method", ""), "invalid_request"),
            (("state", "a\nb"), "invalid_request"),
            (("state", &*"x".repeat(513)), "invalid_request"),
            (("request", "x"), "request_not_supported"),
            (("request_uri", "https://a"), "request_not_supported"),
            (("resource", "https://other/mcp"), "invalid_target"),
        ] {
            assert_eq!(parse(&[change]).unwrap_err().error, error, "{change:?}");
        }
        let twice = Params::parse("redirect_uri=a&redirect_uri=b").unwrap_err();
        assert_eq!(twice.error, "invalid_request");
    }

    /// EXT-226: a token is for this gateway or one of its endpoints.
    #[test]
    fn resource_is_of_this_gateway() {
        let own = ["https://h/mcp".to_owned(), "https://i/mcp".to_owned()];
        let of = |asked: &str| match_resource(Some(asked), &own).ok();
        assert_eq!(match_resource(None, &own).unwrap(), "https://h/mcp");
        for (good, wanted) in [
            ("https://h/mcp", "https://h/mcp"),
            ("https://i/mcp/", "https://i/mcp"),
            ("https://h/mcp/files", "https://h/mcp/files"),
            ("https://h/mcp/p/set", "https://h/mcp/p/set"),
        ] {
            assert_eq!(of(good).as_deref(), Some(wanted), "{good}");
        }
        for bad in [
            "https://h",
            "https://h/",
            "https://h/mcpx",
            "https://h/mcp/a/b/c",
            "https://h/mcp/..",
            "https://h/mcp//a",
            "https://h/mcp/a?x",
            "https://h.evil/mcp",
            "http://h/mcp",
            "",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    /// EXT-225: a sign-in continues in its own browser, at its own stage, for ten minutes.
    #[test]
    fn sign_in_is_bound_to_its_browser_and_stage() {
        let seal = SealKey::new([7; 32]);
        let (own, other) = (sign_in(1), sign_in(2));
        let cookie = own.seal(Stage::Consent, &seal);
        let open = |stage, key: &str, now| SignIn::open(&cookie, stage, key, &seal, now);
        assert_eq!(open(Stage::Consent, &own.key(), NOW), Ok(own.clone()));
        let end = NOW + SIGN_IN_LIFETIME_MS;
        for (stage, key, now) in [
            (Stage::Provider, own.key(), NOW),
            (Stage::Consent, other.key(), NOW),
            (Stage::Consent, String::new(), NOW),
            (Stage::Consent, own.key(), end),
        ] {
            assert_eq!(open(stage, &key, now), Err(UnknownSignIn));
        }
        let forged = SignIn::open("mgp1.AAAA", Stage::Consent, &own.key(), &seal, NOW);
        assert_eq!(forged, Err(UnknownSignIn));
        let approved = own.clone().approve([3; 32]);
        assert_ne!(approved.key(), own.key());
        assert_eq!(SignIn::slot_of_key(&approved.key()), Some(own.slot()));
        assert_eq!(SignIn::slot_of_key("9abc"), None);
        assert!(cookie.len() < 3072, "{}", cookie.len());
        assert!(!format!("{own:?}").contains(&own.seed));
    }

    #[test]
    fn longest_sign_in_fits_into_a_cookie() {
        let (long, state) = (
            format!("https://a.example/{}", "x".repeat(494)),
            "x".repeat(512),
        );
        let mut client = client();
        client.redirect_uris.push(long.clone());
        client.name = "\u{1f600}".repeat(64);
        let mut request = parse(&[("state", &state)]).unwrap();
        request.redirect_uri = long;
        request.resource = "x".repeat(512);
        let cookie = SignIn::begin(request, &client, [1; 32], NOW);
        let cookie = cookie.seal(Stage::Consent, &SealKey::new([7; 32]));
        assert!(cookie.len() <= 3072, "{}", cookie.len());
    }

    /// EXT-225: the answer of the provider counts once.
    #[test]
    fn sign_in_is_consumed_once() {
        let mut consumed = ConsumedSignIns::default();
        assert!(consumed.consume(&sign_in(1), NOW));
        assert!(!consumed.consume(&sign_in(1), NOW + 1));
        assert!(consumed.consume(&sign_in(2), NOW));
        for n in 0..=CONSUMED_MAX {
            let mut seed = [0; 32];
            seed[1..9].copy_from_slice(&(n as u64 + 10).to_le_bytes());
            let request = parse(&[]).unwrap();
            assert!(consumed.consume(&SignIn::begin(request, &client(), seed, NOW), NOW));
        }
        assert_eq!(consumed.keys.len(), CONSUMED_MAX);
        consumed.consume(&sign_in(3), NOW + SIGN_IN_LIFETIME_MS);
        assert_eq!(consumed.keys.len(), 1);
    }

    #[test]
    fn answer_names_the_issuer_and_keeps_the_query() {
        let mut own = sign_in(1);
        let url = own.answer_url("https://h", &[("code", "a b")]);
        assert_eq!(
            url,
            "http://127.0.0.1:9/cb?code=a+b&state=st&iss=https%3A%2F%2Fh"
        );
        own.redirect_uri = "https://a.example/cb?x=1".into();
        own.state = None;
        let url = own.answer_url("https://h", &[("error", "access_denied")]);
        assert_eq!(
            url,
            "https://a.example/cb?x=1&error=access_denied&iss=https%3A%2F%2Fh"
        );
    }
}
