//! Requests to one server, with the token of its login where it has one.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, StatusCode, Uri};
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_transports::http::client::{Client, ClientError, Response};
use std::sync::Arc;

use super::server_login::ServerLogin;

/// Tokens tried for one request: the one at hand, the one that was got in its place, and the one that a person
/// got meanwhile.
const TOKENS: usize = 3;

/// Sends requests to one server.
#[derive(Clone, Debug)]
pub struct ServerClient {
    client: Client,
    login: Option<Arc<ServerLogin>>,
}

impl From<Client> for ServerClient {
    fn from(client: Client) -> Self {
        Self {
            client,
            login: None,
        }
    }
}

impl ServerClient {
    /// With the tokens of this login.
    #[must_use]
    pub fn new(client: Client, login: Option<Arc<ServerLogin>>) -> Self {
        Self { client, login }
    }

    /// Sends one request and waits for the head of its answer. One that is refused for its token, and so was not
    /// carried out, is sent again with another one; when there is none, the refusal is the answer, and
    /// [`ServerClient::parked`] and [`ServerClient::hint`] say what to do.
    ///
    /// # Errors
    /// [`ClientError`], as [`Client::request`].
    pub async fn request(
        &self,
        method: Method,
        url: &Uri,
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Response, ClientError> {
        let Some(login) = &self.login else {
            return self.client.request(method, url, headers, body).await;
        };
        let mut token = login.token().await;
        for tried in 1.. {
            let headers = with(&headers, token.as_deref());
            let sent = self
                .client
                .request(method.clone(), url, headers, body.clone());
            let response = sent.await?;
            let Some(challenge) = refusal(&response) else {
                return Ok(response);
            };
            let next = login
                .refused(token.as_deref(), &challenge, tried == 1)
                .await;
            match next.filter(|_| tried < TOKENS) {
                Some(next) => token = Some(next),
                None => return Ok(response),
            }
        }
        unreachable!("the last token was tried")
    }

    /// Why the server takes no calls before a person has signed in.
    #[must_use]
    pub fn parked(&self) -> Option<String> {
        self.login.as_ref()?.parked()
    }

    /// What a person can do about a refusal, to stand behind it.
    #[must_use]
    pub fn hint(&self, status: StatusCode) -> Option<String> {
        let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let wanted = self.login.as_ref().filter(|_| refused)?.wanted()?;
        Some(format!("; {}", wanted.why))
    }
}

/// The challenge of an answer that wants another token.
fn refusal(response: &Response) -> Option<LoginChallenge> {
    let values = response.headers.get_all(WWW_AUTHENTICATE).iter();
    let challenge = LoginChallenge::read(values.filter_map(|value| value.to_str().ok()));
    match response.status {
        StatusCode::UNAUTHORIZED => Some(challenge.unwrap_or_default()),
        StatusCode::FORBIDDEN => challenge.filter(LoginChallenge::wants_more),
        _ => None,
    }
}

fn with(headers: &HeaderMap, token: Option<&str>) -> HeaderMap {
    let mut headers = headers.clone();
    let value = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
    if let Some(Ok(mut value)) = value {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    headers
}
