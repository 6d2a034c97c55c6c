//! The console over HTTP: its public files, its sign-in, and the check that a request is the operator's.
//!
//! A browser uses `/mcp` like any other client; only the sign-in is here.

mod files;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    ORIGIN, SET_COOKIE,
};
use http::{Method, Request, Response, StatusCode};
use mgp_callers::Credential;
use mgp_engine::doors::app_frames::content_security_policy;
use mgp_engine::doors::console_sessions::SESSION_LIFETIME_MS;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::AgentId;
use mgp_transports::http::body::{ReplyBody, RequestBody, collect};
use mgp_transports::http::guard::is_loopback;
use serde::Deserialize;
use serde_json::json;

use super::responses::{json_response, refusal_response};
use super::{EndpointPath, HttpEndpoint, empty_response, headers, method_not_allowed};
use crate::console::Console;

/// The header with the key of the page. A page of another origin cannot send it without a preflight request
/// (Fetch, CORS), which is never granted.
const PAGE_KEY: HeaderName = HeaderName::from_static("mgp-console");
/// The browser's statement of a request's origin (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The path for signing in and out.
const SESSION_PATH: &str = "/console/session";
/// The path of the frame of an app.
const FRAME_PATH: &str = "/console/frame";
/// The longest query of a frame, in bytes.
const FRAME_QUERY_MAX: usize = 16 << 10;
/// The longest body of a sign-in, in bytes: a code, with some margin.
const LONGEST: usize = 1024;
/// How long a browser may take to send the body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The content security policy: only files of the program are used, nothing is sent elsewhere, and no page
/// may frame it. Text never becomes markup: without a policy for trusted types, the DOM methods for that
/// throw. Frames of apps go nowhere else.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    media-src data: blob:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Errors of the sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignInError {
    /// The request does not come from the console's page.
    #[error("only the page of the console itself may ask this")]
    ForeignPage,
    /// Plain HTTP, under a host name that is not exclusive to this machine.
    #[error("in the clear, the console is reached as localhost or 127.0.0.1 only")]
    Plaintext,
    /// A port of another program, or one that is forwarded without being configured.
    #[error(
        "the console is at another port; where a port is forwarded to it, list the host with that port under \
         `allowed_hosts` in [http]"
    )]
    ForeignPort,
    /// The secrets are unknown or have expired.
    #[error("this browser is not signed in; `mgp console` makes a link")]
    Unknown,
    /// Only the endpoints of all servers and of one, for its apps, serve the console.
    #[error("the console speaks to /mcp and /mcp/<server>, and shows no other credentials")]
    WrongEndpoint,
}

impl SignInError {
    pub(super) fn into_response(self) -> Response<ReplyBody> {
        let code = match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::ForeignPage | Self::Plaintext | Self::ForeignPort | Self::WrongEndpoint => {
                StatusCode::FORBIDDEN
            }
        };
        refusal_response(code, &self.to_string())
    }
}

/// True for the paths of the console.
pub(super) fn is_console_path(path: &str) -> bool {
    path == "/" || path.starts_with("/console/")
}

/// True for a request that declares that it comes from the console's page.
pub(super) fn has_page_key(headers: &HeaderMap) -> bool {
    headers.contains_key(PAGE_KEY)
}

/// Authenticates the operator: a request of the console's page in a signed-in browser.
///
/// # Errors
/// [`SignInError`].
pub(super) fn authenticate(
    console: &Console,
    request: &Request<RequestBody>,
    way: EndpointPath,
    view: &CatalogView,
) -> Result<Credential, SignInError> {
    let is_set = matches!(view, CatalogView::Set(_));
    if way != EndpointPath::Streamable || is_set || request.headers().contains_key(AUTHORIZATION) {
        return Err(SignInError::WrongEndpoint);
    }
    authenticate_browser(console, request).map(|(_, pass)| pass)
}

/// Handles the files, the sign-in and the sign-out.
pub(super) async fn handle(
    endpoint: &HttpEndpoint,
    request: Request<RequestBody>,
) -> Response<ReplyBody> {
    let mut response = match (request.uri().path(), request.method()) {
        (SESSION_PATH, &Method::POST) => handle_sign_in(endpoint, request).await,
        (SESSION_PATH, &Method::DELETE) => handle_sign_out(endpoint, &request),
        (SESSION_PATH, _) => method_not_allowed("POST, DELETE"),
        (FRAME_PATH, &Method::GET) => return serve_frame(&endpoint.console, &request),
        (_, &(Method::GET | Method::HEAD)) => serve_page(&endpoint.console, &request),
        _ => method_not_allowed("GET, HEAD"),
    };
    let headers = response.headers_mut();
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    headers.insert("content-security-policy", policy);
    headers.insert("x-frame-options", HeaderValue::from_static("DENY"));
    add_isolation(headers);
    response
}

/// The headers of all answers: nothing is guessed, sent along, lent to other origins or allowed of the machine.
fn add_isolation(headers: &mut HeaderMap) {
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        (
            "permissions-policy",
            "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Serves the document that an app's page is loaded into, under the policy that its query declares: base64 of the JSON that
/// the resource has. It has an origin of its own, whoever opens it.
fn serve_frame<B>(console: &Console, request: &Request<B>) -> Response<ReplyBody> {
    let own = match console_host(console, request) {
        Ok(own) => own,
        Err(error) => return error.into_response(),
    };
    let query = request.uri().query().unwrap_or("");
    if query.len() > FRAME_QUERY_MAX {
        return refusal_response(
            StatusCode::URI_TOO_LONG,
            "the app declares too many origins",
        );
    }
    let declared = URL_SAFE_NO_PAD.decode(query).unwrap_or_default();
    let declared = String::from_utf8_lossy(&declared);
    let policy = content_security_policy(&declared, own);
    let mut response = Response::new(ReplyBody::full(files::FRAME));
    let headers = response.headers_mut();
    let policy = HeaderValue::from_str(&policy).expect("origins of letters, digits and dots");
    headers.insert("content-security-policy", policy);
    let page = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(CONTENT_TYPE, page);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-dns-prefetch-control", HeaderValue::from_static("off"));
    add_isolation(headers);
    response
}

/// Serves a file of the page if the console is reached at its own address: otherwise a sign-in would fail.
fn serve_page<B>(console: &Console, request: &Request<B>) -> Response<ReplyBody> {
    match console_host(console, request) {
        Ok(_) => serve_file(request.uri().path()),
        Err(error) => error.into_response(),
    }
}

fn serve_file(path: &str) -> Response<ReplyBody> {
    let Some(file) = files::find(path) else {
        return refusal_response(StatusCode::NOT_FOUND, "the console has no such file");
    };
    let mut response = Response::new(ReplyBody::full(file.bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    // The next version of the program may have another file under the same name.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The body of a sign-in: the code of the link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignInRequest {
    code: String,
}

async fn handle_sign_in(
    endpoint: &HttpEndpoint,
    request: Request<RequestBody>,
) -> Response<ReplyBody> {
    if let Err(error) = check_same_origin(&endpoint.console, &request) {
        return error.into_response();
    }
    if !headers::is_json(request.headers()) {
        let message = "send `Content-Type: application/json`";
        return refusal_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    let anonymous = AgentId::new(AgentId::ANONYMOUS);
    let budget = || endpoint.endpoint.message_budgets.agent_budget(&anonymous);
    let body = match collect(request.into_body(), LONGEST, BODY_TIMEOUT, budget).await {
        Ok(body) => body,
        Err(untaken) => {
            return refusal_response(untaken.error.status(), &untaken.error.to_string());
        }
    };
    let Ok(shown) = serde_json::from_slice::<SignInRequest>(&body) else {
        let message = r#"send {"code": "…"}, as it stands behind the # of the link"#;
        return refusal_response(StatusCode::BAD_REQUEST, message);
    };
    let signed_in = match endpoint.console.sign_in(&shown.code) {
        Ok(signed_in) => signed_in,
        Err(error) => return refusal_response(StatusCode::UNAUTHORIZED, &error.to_string()),
    };
    let body = json!({"pageKey": signed_in.page_key, "untilMs": signed_in.until_ms});
    let mut response = json_response(StatusCode::OK, ReplyBody::full(body.to_string()));
    set_cookie(
        &mut response,
        &endpoint.console,
        &signed_in.cookie,
        SESSION_LIFETIME_MS / 1000,
    );
    response
}

fn handle_sign_out(endpoint: &HttpEndpoint, request: &Request<RequestBody>) -> Response<ReplyBody> {
    let number = match authenticate_browser(&endpoint.console, request) {
        Ok((number, _)) => number,
        Err(error) => return error.into_response(),
    };
    endpoint.console.sign_out(number);
    let mut response = empty_response(StatusCode::NO_CONTENT);
    set_cookie(&mut response, &endpoint.console, "", 0);
    response
}

fn set_cookie(response: &mut Response<ReplyBody>, console: &Console, value: &str, secs: u64) {
    let name = console.cookie_name();
    let secure = if console.is_secure() { "; Secure" } else { "" };
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={secs}; HttpOnly; SameSite=Strict{secure}");
    let headers = response.headers_mut();
    let cookie = HeaderValue::from_str(&cookie).expect("a name, base64 and numbers");
    headers.insert(SET_COOKIE, cookie);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Authenticates a browser by both its secrets.
fn authenticate_browser(
    console: &Console,
    request: &Request<RequestBody>,
) -> Result<(u64, Credential), SignInError> {
    check_same_origin(console, request)?;
    let headers = request.headers();
    let key = headers::header_text(headers, &PAGE_KEY).unwrap_or("");
    let cookie = cookie_value(headers, &console.cookie_name()).unwrap_or("");
    console
        .authenticate(cookie, key)
        .ok_or(SignInError::Unknown)
}

/// The value of a cookie that occurs exactly once.
pub(super) fn cookie_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter();
    let all = all.filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';'));
    let mut found = pairs.filter_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    });
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Checks the browser's own statement of a request's origin: scripts cannot write these headers.
fn check_same_origin<B>(console: &Console, request: &Request<B>) -> Result<(), SignInError> {
    let headers = request.headers();
    let own = console_host(console, request)?;
    let scheme = if console.is_secure() { "https" } else { "http" };
    let site = headers::header_text(headers, &FETCH_SITE);
    let same_site = site.is_none_or(|site| site == "same-origin");
    let same_origin = match headers.get(ORIGIN) {
        Some(origin) => *origin == format!("{scheme}://{own}"),
        // Browsers send no origin with a GET.
        None => request.method() == Method::GET && site.is_some(),
    };
    if same_site && same_origin {
        Ok(())
    } else {
        Err(SignInError::ForeignPage)
    }
}

/// The host and port in the request, if the console is reachable there.
fn console_host<'r, B>(console: &Console, request: &'r Request<B>) -> Result<&'r str, SignInError> {
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let host = headers::header_text(request.headers(), &HOST);
    let own = authority.or(host).ok_or(SignInError::ForeignPage)?;
    if !console.is_secure() && !is_loopback(own) {
        return Err(SignInError::Plaintext);
    }
    let authority = own.parse().map_err(|_| SignInError::ForeignPage)?;
    if console.is_reachable_at(&authority) {
        Ok(own)
    } else {
        Err(SignInError::ForeignPort)
    }
}

#[cfg(test)]
mod tests;
