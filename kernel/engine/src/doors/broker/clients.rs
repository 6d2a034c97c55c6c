//! The clients of the broker: registered ones (RFC 7591), whose id is their sealed registration, and ones with a metadata
//! document (draft-ietf-oauth-client-id-metadata-document). All are public: they have no secret, and PKCE instead.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::{Host, Url};

use super::{OauthError, sanitize_line};
use crate::callers::seal::{Purpose, SealKey};

/// Longest body of a registration and longest metadata document, in bytes; usual ones have a few hundred.
pub const DOCUMENT_BYTES_MAX: usize = 8 << 10;
/// Most redirect URIs of a client.
const REDIRECTS_MAX: usize = 8;
/// Most bytes of one redirect URI.
const REDIRECT_BYTES_MAX: usize = 512;
/// Most bytes of all redirect URIs of a registered client: its id contains them, and is sent in URLs.
const REDIRECTS_BYTES_MAX: usize = 1024;
/// Longest displayed name, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Longest id of a client, in bytes: a sealed registration with the longest redirect URIs and name.
const ID_BYTES_MAX: usize = 4 << 10;

/// A client of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its id.
    pub id: String,
    /// The name that it gave itself, as one line of plain text; may be empty.
    pub name: String,
    /// Valid redirect URIs.
    pub redirect_uris: Vec<String>,
    /// The host that published its document, which proves that the client is this host's.
    pub document_host: Option<String>,
}

/// What the id of a registered client contains.
#[derive(Serialize, Deserialize)]
struct RegisteredClient {
    /// Two registrations with the same words are two clients.
    #[serde(rename = "i")]
    salt: String,
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "r")]
    redirect_uris: Vec<String>,
}

/// What a client says of itself, in a registration and in a document.
#[derive(Deserialize)]
struct ClientMetadata {
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    client_name: Option<String>,
    #[serde(default)]
    redirect_uris: Vec<String>,
    #[serde(default)]
    grant_types: Option<Vec<String>>,
    #[serde(default)]
    response_types: Option<Vec<String>>,
    #[serde(default)]
    token_endpoint_auth_method: Option<String>,
    #[serde(default)]
    client_secret: Option<Value>,
}

/// How an id names its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientId {
    /// A registered client.
    Registered(Client),
    /// A client whose document is at this URL.
    Document(Url),
}

/// Registers a client: returns the response of RFC 7591, section 3.2.1. Nothing is stored. `salt` is random.
///
/// # Errors
/// `invalid_client_metadata`, `invalid_redirect_uri`.
pub fn register(
    json: &[u8],
    seal: &SealKey,
    salt: String,
    now_ms: u64,
) -> Result<Value, OauthError> {
    let metadata = parse_metadata(json)?;
    let name = sanitize_line(
        metadata.client_name.as_deref().unwrap_or_default(),
        NAME_CHARS_MAX,
    );
    let total: usize = metadata.redirect_uris.iter().map(String::len).sum();
    if total > REDIRECTS_BYTES_MAX {
        return Err(invalid_redirect("the redirect URIs are too long"));
    }
    let client = RegisteredClient {
        salt,
        name,
        redirect_uris: metadata.redirect_uris,
    };
    let id = seal.seal(Purpose::BrokerClient, "", &client);
    Ok(json!({
        "client_id": id,
        "client_id_issued_at": now_ms / 1000,
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }))
}

impl ClientId {
    /// Parses the id of a client.
    ///
    /// # Errors
    /// `invalid_client`.
    pub fn parse(id: &str, seal: &SealKey) -> Result<Self, OauthError> {
        let unknown =
            || OauthError::invalid_client("no such client is registered here; register it again");
        if id.len() > ID_BYTES_MAX {
            return Err(unknown());
        }
        if id.starts_with("https://") {
            return parse_document_url(id).map(Self::Document);
        }
        let client: RegisteredClient = seal
            .open(Purpose::BrokerClient, "", id)
            .map_err(|_| unknown())?;
        Ok(Self::Registered(Client {
            id: id.to_owned(),
            name: client.name,
            redirect_uris: client.redirect_uris,
            document_host: None,
        }))
    }
}

/// The URL of a metadata document: https, with a path, and without what makes one document have several URLs.
fn parse_document_url(id: &str) -> Result<Url, OauthError> {
    let invalid = || {
        OauthError::invalid_client("the client id is no https URL of a client metadata document")
    };
    let url = Url::parse(id).map_err(|_| invalid())?;
    let is_domain = matches!(url.host(), Some(Host::Domain(_)));
    let is_plain = url.as_str() == id
        && url.path().len() > 1
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    (is_domain && is_plain && id.len() <= REDIRECT_BYTES_MAX)
        .then_some(url)
        .ok_or_else(invalid)
}

/// The client whose document was found at this URL.
///
/// # Errors
/// `invalid_client`.
pub fn parse_document(json: &[u8], url: &Url) -> Result<Client, OauthError> {
    let invalid =
        |why: &str| OauthError::invalid_client(format!("the document of the client {why}"));
    let metadata = parse_metadata(json).map_err(|e| invalid(&format!("is invalid: {e}")))?;
    if metadata.client_id.as_deref() != Some(url.as_str()) {
        return Err(invalid("names another client"));
    }
    let is_public = matches!(
        metadata.token_endpoint_auth_method.as_deref(),
        None | Some("none")
    );
    if !is_public || metadata.client_secret.is_some() {
        return Err(invalid(
            "wants a client with a secret or key; only public ones are served",
        ));
    }
    Ok(Client {
        id: url.as_str().to_owned(),
        name: sanitize_line(
            metadata.client_name.as_deref().unwrap_or_default(),
            NAME_CHARS_MAX,
        ),
        redirect_uris: metadata.redirect_uris,
        document_host: url.host_str().map(ToOwned::to_owned),
    })
}

fn parse_metadata(json: &[u8]) -> Result<ClientMetadata, OauthError> {
    let invalid = |why: &str| OauthError::new("invalid_client_metadata", why);
    // A list would fill the members by their order.
    let is_object = json.trim_ascii_start().starts_with(b"{");
    let metadata: Option<ClientMetadata> = serde_json::from_slice(json).ok();
    let metadata = metadata
        .filter(|_| is_object)
        .ok_or_else(|| invalid("the body is no JSON object of client metadata"))?;
    let lacks = |list: &Option<Vec<String>>, wanted: &str| {
        list.as_ref()
            .is_some_and(|list| !list.iter().any(|it| it == wanted))
    };
    if lacks(&metadata.grant_types, "authorization_code") || lacks(&metadata.response_types, "code")
    {
        return Err(invalid(
            "clients get tokens with a code: `authorization_code` and `code`",
        ));
    }
    if !(1..=REDIRECTS_MAX).contains(&metadata.redirect_uris.len()) {
        return Err(invalid_redirect("`redirect_uris` has one to eight"));
    }
    for uri in &metadata.redirect_uris {
        check_redirect_uri(uri).map_err(invalid_redirect)?;
    }
    Ok(metadata)
}

fn invalid_redirect(why: &str) -> OauthError {
    OauthError::new("invalid_redirect_uri", why)
}

/// Checks a redirect URI: https, or http to this machine (MCP, "Communication Security"), without what readers of URLs
/// differ on.
fn check_redirect_uri(text: &str) -> Result<(), &'static str> {
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic()) && !text.contains(['\\', '#', '@']);
    if !is_plain || text.len() > REDIRECT_BYTES_MAX {
        return Err(
            "a redirect URI is plain ASCII of at most 512 bytes, without fragment and user",
        );
    }
    let url = Url::parse(text).map_err(|_| "a redirect URI is no URL")?;
    let is_secure = match url.scheme() {
        "https" => is_plain_authority(text, &url),
        "http" => split_loopback(text).is_some(),
        _ => false,
    };
    if is_secure {
        Ok(())
    } else {
        Err(
            "a redirect URI begins with https://, http://127.0.0.1, http://[::1] or http://localhost",
        )
    }
}

/// Whether every reader of an https URL finds the host that the person is shown.
fn is_plain_authority(text: &str, url: &Url) -> bool {
    let rest = text.strip_prefix("https://").unwrap_or_default();
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    !host.is_empty()
        && url
            .host_str()
            .is_some_and(|read| read.eq_ignore_ascii_case(host))
}

/// The host of a redirect to this machine, and what follows its port.
fn split_loopback(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("http://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    ["127.0.0.1", "[::1]", "localhost"]
        .into_iter()
        .find_map(|host| {
            let port = authority.strip_prefix(host)?;
            let is_port = port.is_empty()
                || port.strip_prefix(':').is_some_and(|port| {
                    port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit())
                });
            is_port.then_some((host, path))
        })
}

impl Client {
    /// Whether a request may be answered at this URI: letter by letter one of the registered ones; on this machine
    /// at any port (RFC 8252, section 7.3).
    #[must_use]
    pub fn has_redirect_uri(&self, asked: &str) -> bool {
        if check_redirect_uri(asked).is_err() {
            return false;
        }
        let loopback = split_loopback(asked);
        let matches =
            |uri: &String| uri == asked || (loopback.is_some() && split_loopback(uri) == loopback);
        self.redirect_uris.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal() -> SealKey {
        SealKey::new([7; 32])
    }

    fn registered(metadata: &Value) -> Result<Client, OauthError> {
        let response = register(metadata.to_string().as_bytes(), &seal(), "s".into(), 7000)?;
        let ClientId::Registered(client) =
            ClientId::parse(response["client_id"].as_str().unwrap(), &seal())?
        else {
            panic!("{response}")
        };
        Ok(client)
    }

    fn client(uris: &[&str]) -> Client {
        registered(&json!({ "redirect_uris": uris })).unwrap()
    }

    /// EXT-221: the id is the registration: it is the same after a restart, and nobody else can make one.
    #[test]
    fn id_of_a_client_is_its_sealed_registration() {
        let metadata = json!({
            "client_name": "Desk", "redirect_uris": ["http://localhost:3000/callback"],
            "token_endpoint_auth_method": "client_secret_post", "unknown": 1,
        });
        let bytes = metadata.to_string();
        let response = register(bytes.as_bytes(), &seal(), "a".into(), 7000).unwrap();
        assert_eq!(response["token_endpoint_auth_method"], "none");
        assert_eq!(response["client_id_issued_at"], 7);
        assert!(response.get("client_secret").is_none());
        let id = response["client_id"].as_str().unwrap();
        assert!(!id.contains("Desk"));
        let other = register(bytes.as_bytes(), &seal(), "b".into(), 7000).unwrap();
        assert_ne!(other["client_id"], id);
        assert!(ClientId::parse(id, &seal()).is_ok());
        for bad in [&id[1..], "mgp1.AAAA", "", "desk", &"x".repeat(5000)] {
            let error = ClientId::parse(bad, &seal()).unwrap_err();
            assert_eq!(error.error, "invalid_client", "{bad}");
        }
        let foreign = ClientId::parse(id, &SealKey::new([8; 32])).unwrap_err();
        assert_eq!(foreign.error, "invalid_client");
    }

    /// EXT-224: what a client calls itself is one line that can be seen.
    #[test]
    fn name_of_a_client_is_one_line_of_plain_text() {
        let forged = "Desk\r\n\u{202e}\u{200b}\u{1b}[31m  by\u{2028}\tthe \u{e0041}kernel";
        let found =
            registered(&json!({"client_name": forged, "redirect_uris": ["https://a.example/c"]}));
        assert_eq!(found.unwrap().name, "Desk[31m bythe kernel");
        let long = registered(
            &json!({"client_name": "n".repeat(5000), "redirect_uris": ["https://a.example/c"]}),
        );
        assert_eq!(long.unwrap().name.len(), 64);
    }

    /// EXT-222: letter by letter, but for the port on this machine.
    #[test]
    fn redirect_uri_matches_letter_by_letter() {
        let own = client(&[
            "https://a.example/cb?x=1",
            "http://127.0.0.1:3000/cb",
            "http://localhost/cb",
        ]);
        for good in [
            "https://a.example/cb?x=1",
            "http://127.0.0.1:3000/cb",
            "http://127.0.0.1:9/cb",
            "http://127.0.0.1/cb",
            "http://localhost:4711/cb",
        ] {
            assert!(own.has_redirect_uri(good), "{good}");
        }
        for bad in [
            "https://a.example/cb",
            "https://a.example/cb?x=1&y=2",
            "https://a.example/cb/?x=1",
            "https://a.example:444/cb?x=1",
            "https://a.example:443/cb?x=1",
            "https://A.example/cb?x=1",
            "http://a.example/cb?x=1",
            "https://a.example.evil/cb?x=1",
            "https://u@a.example/cb?x=1",
            "https://evil/?https://a.example/cb?x=1",
            "http://127.0.0.1:3000/cb#x",
            "http://127.0.0.1:3000/cb/",
            "http://127.0.0.1:3000/CB",
            "http://127.0.0.1:3000/x/../cb",
            "http://127.0.0.1:3000@evil/cb",
            "http://127.0.0.1.evil:3000/cb",
            "http://127.0.0.1:3000\\@evil/cb",
            "http://127.1:3000/cb",
            "http://[::1]:3000/cb",
            "http://localhost:3000/cb?x",
            "https://localhost/cb",
            "http://localhost:/evil/cb",
            "http://localhost:123456/cb",
            "",
        ] {
            assert!(!own.has_redirect_uri(bad), "{bad}");
        }
    }

    /// EXT-222: nothing that leads to a script, to a program or through a network in the clear.
    #[test]
    fn unsafe_redirect_uris_are_not_registered() {
        for bad in [
            "http://a.example/cb",
            "http://localhost.evil/cb",
            "javascript:alert(1)",
            "https:///evil.example/cb",
            "https:////evil.example/cb",
            "https://%65vil.example/cb",
            "https://:443/cb",
            "data:text/html,x",
            "cursor://x/cb",
            "file:///etc/passwd",
            "https://a.example/cb#x",
            "https://u:p@a.example/cb",
            "https:a.example/cb",
            "https://a.example/\u{e9}",
            "https://a.example/ x",
            "https://a.example/\r\nx",
            "/cb",
            "",
        ] {
            let found = registered(&json!({"redirect_uris": ["https://a.example/cb", bad]}));
            assert_eq!(found.unwrap_err().error, "invalid_redirect_uri", "{bad}");
        }
        let none = registered(&json!({ "redirect_uris": [] })).unwrap_err();
        assert_eq!(none.error, "invalid_redirect_uri");
        let many = vec!["https://a.example/cb"; 9];
        let many = registered(&json!({ "redirect_uris": many })).unwrap_err();
        assert_eq!(many.error, "invalid_redirect_uri");
        let long = format!("https://a.example/{}", "x".repeat(480));
        let long = registered(&json!({"redirect_uris": [long, long, long]})).unwrap_err();
        assert_eq!(long.error, "invalid_redirect_uri");
        let implicit =
            json!({"redirect_uris": ["https://a.example/cb"], "grant_types": ["implicit"]});
        assert_eq!(
            registered(&implicit).unwrap_err().error,
            "invalid_client_metadata"
        );
    }

    /// The longest registration still fits into an id that is accepted.
    #[test]
    fn longest_registration_has_a_valid_id() {
        let long = format!("https://a.example/{}", "x".repeat(494));
        let metadata =
            json!({"client_name": "\u{1f600}".repeat(80), "redirect_uris": [long, long]});
        assert_eq!(registered(&metadata).unwrap().redirect_uris.len(), 2);
    }

    /// EXT-223: a document speaks for its own URL alone.
    #[test]
    fn document_names_exactly_its_url() {
        let url = "https://app.example/client.json";
        let ClientId::Document(at) = ClientId::parse(url, &seal()).unwrap() else {
            panic!("a document")
        };
        let with = |name: &str, value: Value| {
            let mut document = json!({
                "client_id": url, "client_name": "App", "redirect_uris": ["https://app.example/cb"],
            });
            document[name] = value;
            parse_document(document.to_string().as_bytes(), &at)
        };
        let client = with("x", json!(1)).unwrap();
        assert_eq!(client.document_host.as_deref(), Some("app.example"));
        for (name, value) in [
            ("client_id", json!("https://app.example/other.json")),
            ("client_id", json!("https://app.example/client.json/")),
            ("client_id", json!(null)),
            ("redirect_uris", json!(["http://app.example/cb"])),
            ("redirect_uris", json!([])),
            ("client_secret", json!("s")),
            ("token_endpoint_auth_method", json!("private_key_jwt")),
        ] {
            let error = with(name, value.clone()).unwrap_err();
            assert_eq!(error.error, "invalid_client", "{name} {value}");
        }
        for bad in [
            "https://app.example",
            "https://app.example/",
            "https://app.example/a/../client.json",
            "https://u@app.example/client.json",
            "https://app.example/client.json#x",
            "https://127.0.0.1/client.json",
            "https://[::1]/client.json",
            "https://APP.example/client.json",
        ] {
            assert!(ClientId::parse(bad, &seal()).is_err(), "{bad}");
        }
    }
}
