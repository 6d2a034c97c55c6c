//! Who the kernel is to an authorization server: a client registered beforehand, one with a document of its own,
//! or one that registers itself.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::discovery::AuthorizationServer;
use super::{LoginConfig, SignInError, quote_foreign_text};

/// The name shown to the person who signs in.
pub(crate) const CLIENT_NAME: &str = "mgp";
/// Longest id and secret of a client, in bytes.
const CREDENTIAL_BYTES_MAX: usize = 4 << 10;

/// How a client shows who it is when it asks for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// Not at all: a program on a person's machine keeps no secret.
    None,
    /// Its secret, in a header.
    ClientSecretBasic,
    /// Its secret, among the rest.
    ClientSecretPost,
    /// An assertion signed with its key.
    PrivateKeyJwt,
}

/// A client of one authorization server. Nothing of it is shown to another one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientIdentity {
    /// Its id.
    pub id: String,
    /// Its secret, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// How it shows who it is.
    pub auth: ClientAuth,
    /// Where the browser comes back to, as registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("id", &self.id)
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

/// How the kernel comes to be a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientSource {
    /// It is one.
    Existing(ClientIdentity),
    /// It registers, at this address.
    Register(String),
}

/// Chooses: what the entry says, then its document, then the registration of an earlier login at this issuer,
/// then a new one.
///
/// # Errors
/// [`SignInError::RegistrationUnsupported`].
pub fn choose_client(
    rules: &LoginConfig,
    server: &AuthorizationServer,
    before: Option<&ClientIdentity>,
    callback: Option<&str>,
) -> Result<ClientSource, SignInError> {
    let document = rules
        .client_id
        .as_deref()
        .filter(|id| id.starts_with("https://"));
    if let (Some(id), true) = (
        &rules.client_id,
        document.is_none() || server.supports_client_documents,
    ) {
        return Ok(ClientSource::Existing(configured_client(rules, server, id)));
    }
    let same = |client: &&ClientIdentity| client.callback.as_deref() == callback;
    if let Some(client) = before.filter(same) {
        return Ok(ClientSource::Existing(client.clone()));
    }
    let endpoint = server.registration_endpoint.clone();
    endpoint
        .map(ClientSource::Register)
        .ok_or_else(|| SignInError::RegistrationUnsupported {
            issuer: quote_foreign_text(&server.issuer),
        })
}

fn configured_client(
    rules: &LoginConfig,
    server: &AuthorizationServer,
    id: &str,
) -> ClientIdentity {
    let auth = match (&rules.client_key, &rules.client_secret) {
        (Some(_), _) => ClientAuth::PrivateKeyJwt,
        (None, Some(_)) => secret_auth(server),
        (None, None) => ClientAuth::None,
    };
    ClientIdentity {
        id: id.to_owned(),
        secret: rules.client_secret.clone(),
        auth,
        callback: None,
    }
}

/// How a secret is shown: in the header unless the server says that it takes it only otherwise (RFC 8414: without
/// a word it is the header). A server that wants none is shown none.
fn secret_auth(server: &AuthorizationServer) -> ClientAuth {
    let Some(methods) = &server.auth_methods else {
        return ClientAuth::ClientSecretBasic;
    };
    let takes = |method: &str| methods.iter().any(|it| it == method);
    match (
        takes("client_secret_basic"),
        takes("client_secret_post"),
        takes("none"),
    ) {
        (true, _, _) | (false, false, false) => ClientAuth::ClientSecretBasic,
        (false, true, _) => ClientAuth::ClientSecretPost,
        (false, false, true) => ClientAuth::None,
    }
}

/// The body of a registration (RFC 7591) of a program on a person's machine.
#[must_use]
pub fn render_registration(server: &AuthorizationServer, callback: &str) -> String {
    let methods = server.auth_methods.as_deref();
    let takes = |method: &str| methods.is_none_or(|all| all.iter().any(|it| it == method));
    let known = ["none", "client_secret_basic", "client_secret_post"];
    let method = known
        .into_iter()
        .find(|method| takes(method))
        .unwrap_or("none");
    let refreshes = server.supports_grant("refresh_token");
    let grants = ["authorization_code", "refresh_token"];
    json!({
        "client_name": CLIENT_NAME,
        "application_type": "native",
        "redirect_uris": [callback],
        "grant_types": if refreshes { &grants[..] } else { &grants[..1] },
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    })
    .to_string()
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    #[serde(default)]
    client_secret: Option<String>,
    #[serde(default)]
    token_endpoint_auth_method: Option<String>,
}

/// The client that a registration came to.
///
/// # Errors
/// It names none.
pub fn parse_registration(
    json: &[u8],
    server: &AuthorizationServer,
    callback: &str,
) -> Result<ClientIdentity, SignInError> {
    let refused = |why: &str| SignInError::Document {
        what: "the registration",
        at: quote_foreign_text(&server.issuer),
        why: why.to_owned(),
    };
    let written: RegistrationResponse =
        serde_json::from_slice(json).map_err(|_| refused("it names no client"))?;
    let texts = [Some(&written.client_id), written.client_secret.as_ref()];
    if texts
        .into_iter()
        .flatten()
        .any(|text| text.is_empty() || text.len() > CREDENTIAL_BYTES_MAX)
    {
        return Err(refused("its id or secret is empty or too long"));
    }
    let auth = match (
        written.token_endpoint_auth_method.as_deref(),
        &written.client_secret,
    ) {
        (_, None) | (Some("none"), _) => ClientAuth::None,
        (Some("client_secret_post"), _) => ClientAuth::ClientSecretPost,
        (Some("client_secret_basic"), _) => ClientAuth::ClientSecretBasic,
        (_, Some(_)) => secret_auth(server),
    };
    Ok(ClientIdentity {
        id: written.client_id,
        secret: written.client_secret.filter(|_| auth != ClientAuth::None),
        auth,
        callback: Some(callback.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACK: &str = "http://127.0.0.1:1/callback";

    fn server(methods: Option<&[&str]>) -> AuthorizationServer {
        AuthorizationServer {
            auth_methods: methods.map(|all| all.iter().map(|m| (*m).to_owned()).collect()),
            ..AuthorizationServer::without_metadata("https://as")
        }
    }

    fn with(id: &str, secret: Option<&str>) -> LoginConfig {
        LoginConfig {
            client_id: Some(id.into()),
            client_secret: secret.map(Into::into),
            ..LoginConfig::with_browser()
        }
    }

    fn known(choice: ClientSource) -> ClientIdentity {
        match choice {
            ClientSource::Existing(client) => client,
            ClientSource::Register(at) => panic!("registers at {at}"),
        }
    }

    #[test]
    fn a_client_of_the_entry_comes_first_and_its_secret_goes_as_the_server_takes_it() {
        let cases: [(Option<&[&str]>, ClientAuth); 5] = [
            (None, ClientAuth::ClientSecretBasic),
            (Some(&["client_secret_post"]), ClientAuth::ClientSecretPost),
            (
                Some(&["client_secret_post", "client_secret_basic"]),
                ClientAuth::ClientSecretBasic,
            ),
            (Some(&["none"]), ClientAuth::None),
            (Some(&["tls_client_auth"]), ClientAuth::ClientSecretBasic),
        ];
        for (methods, auth) in cases {
            let chosen =
                choose_client(&with("me", Some("s")), &server(methods), None, Some(BACK)).unwrap();
            assert_eq!(known(chosen).auth, auth, "{methods:?}");
        }
        let public = choose_client(&with("me", None), &server(None), None, Some(BACK)).unwrap();
        assert_eq!(known(public).auth, ClientAuth::None);
    }

    #[test]
    fn a_document_is_shown_only_to_a_server_that_reads_them() {
        let rules = with("https://me.example/client.json", None);
        let mut server = server(None);
        let registers = ClientSource::Register("https://as/register".into());
        assert_eq!(
            choose_client(&rules, &server, None, Some(BACK)).unwrap(),
            registers
        );
        server.supports_client_documents = true;
        let client = known(choose_client(&rules, &server, None, Some(BACK)).unwrap());
        assert_eq!(client.id, "https://me.example/client.json");
    }

    #[test]
    fn a_registration_is_used_again_for_the_same_way_back_only() {
        let before = parse_registration(br#"{"client_id": "c1"}"#, &server(None), BACK).unwrap();
        let choice = |back| {
            choose_client(
                &LoginConfig::with_browser(),
                &server(None),
                Some(&before),
                Some(back),
            )
            .unwrap()
        };
        assert_eq!(known(choice(BACK)).id, "c1");
        assert!(matches!(
            choice("http://127.0.0.1:2/callback"),
            ClientSource::Register(_)
        ));
        let mut closed = server(None);
        closed.registration_endpoint = None;
        let refused =
            choose_client(&LoginConfig::with_browser(), &closed, None, Some(BACK)).unwrap_err();
        assert!(refused.to_string().contains("client_id"), "{refused}");
    }

    #[test]
    fn a_registration_says_that_this_is_a_program_on_a_machine() {
        let body: serde_json::Value =
            serde_json::from_str(&render_registration(&server(None), BACK)).unwrap();
        assert_eq!(body["application_type"], "native");
        assert_eq!(body["token_endpoint_auth_method"], "none");
        assert_eq!(
            body["grant_types"],
            json!(["authorization_code", "refresh_token"])
        );
        let basic = server(Some(&["client_secret_basic"]));
        let body: serde_json::Value =
            serde_json::from_str(&render_registration(&basic, BACK)).unwrap();
        assert_eq!(body["token_endpoint_auth_method"], "client_secret_basic");
    }

    #[test]
    fn what_registration_answers_is_held_to_its_word() {
        let read =
            |json: &str, methods| parse_registration(json.as_bytes(), &server(methods), BACK);
        let post = r#"{"client_id":"c","client_secret":"s","token_endpoint_auth_method":"client_secret_post"}"#;
        assert_eq!(read(post, None).unwrap().auth, ClientAuth::ClientSecretPost);
        let unsaid = r#"{"client_id":"c","client_secret":"s"}"#;
        let none = read(unsaid, Some(&["none"])).unwrap();
        assert_eq!((none.auth, none.secret), (ClientAuth::None, None));
        for bad in ["{}", r#"{"client_id":""}"#, "[]"] {
            assert!(read(bad, None).is_err(), "{bad}");
        }
        assert!(!format!("{:?}", read(post, None)).contains("\"s\""));
    }
}
