//! The console in a browser: its files, which anybody may have, its sign-in, and whose request is the
//! operator's.
//!
//! What a browser may do is done at `/mcp` like by anybody else; nothing but the sign-in is here.

mod files;

use std::time::Duration;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    ORIGIN, SET_COOKIE,
};
use http::{Method, Request, Response, StatusCode};
use mgp_callers::credential::Credential;
use mgp_engine::doors::console::SIGN_IN_MS;
use mgp_engine::tools::catalog::CatalogView;
use mgp_protocol::ids::AgentId;
use mgp_transports::http::body::{ReplyBody, RequestBody, collect};
use mgp_transports::http::guard::is_loopback;
use serde::Deserialize;
use serde_json::json;

use super::answer::{json, refusal};
use super::{DoorPath, HttpDoor, headers, not_allowed, status};
use crate::console::Console;

/// The key of the page. A page of another origin cannot send it without being asked whether it may
/// (Fetch, CORS), and is never told yes.
const PAGE_KEY: HeaderName = HeaderName::from_static("mgp-console");
/// What a browser says of where a request comes from (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Where a browser signs in and out.
const SESSION: &str = "/console/session";
/// Longest body of a sign-in, in bytes: a code, and room around it.
const LONGEST: usize = 1024;
/// How long a browser may take to send it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Only what is part of the program is run or shown, nothing is sent anywhere else, and nobody frames it.
/// Text never becomes markup: without a policy for trusted types, the ways to do that throw.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    media-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Why a browser is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotSignedIn {
    /// It is not the page of the console that asks.
    #[error("only the page of the console itself may ask this")]
    OtherPage,
    /// In the clear, under a name that others have, too.
    #[error("in the clear, the console is reached as localhost or 127.0.0.1 only")]
    InTheClear,
    /// Under a port that is another program's, or leads here unannounced.
    #[error(
        "the console is at another port; where a port is forwarded to it, list the host with that port under \
         `allowed_hosts` in [http]"
    )]
    OtherPort,
    /// Its secrets are not good, or not any more.
    #[error("this browser is not signed in; `mgp console` makes a link")]
    Unknown,
    /// It is for the door that shows everything.
    #[error("the console speaks to /mcp, and shows no other credentials")]
    OtherDoor,
}

impl NotSignedIn {
    pub(super) fn answer(self) -> Response<ReplyBody> {
        let code = match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::OtherPage | Self::InTheClear | Self::OtherPort | Self::OtherDoor => {
                StatusCode::FORBIDDEN
            }
        };
        refusal(code, &self.to_string())
    }
}

/// True for the paths that are the console's.
pub(super) fn is_its(path: &str) -> bool {
    path == "/" || path.starts_with("/console/")
}

/// True for a request that says it comes from the page of the console.
pub(super) fn is_claimed(headers: &HeaderMap) -> bool {
    headers.contains_key(PAGE_KEY)
}

/// The operator's credential, for a request of the console's page in a browser that is signed in.
///
/// # Errors
/// [`NotSignedIn`].
pub(super) fn admitted(
    console: &Console,
    request: &Request<RequestBody>,
    way: DoorPath,
    view: &CatalogView,
) -> Result<Credential, NotSignedIn> {
    let everything = (way, view) == (DoorPath::Streamable, &CatalogView::All);
    if !everything || request.headers().contains_key(AUTHORIZATION) {
        return Err(NotSignedIn::OtherDoor);
    }
    browser(console, request).map(|(_, pass)| pass)
}

/// Files, the sign-in and the sign-out.
pub(super) async fn answer(door: &HttpDoor, request: Request<RequestBody>) -> Response<ReplyBody> {
    let mut response = match (request.uri().path(), request.method()) {
        (SESSION, &Method::POST) => sign_in(door, request).await,
        (SESSION, &Method::DELETE) => sign_out(door, &request),
        (SESSION, _) => not_allowed("POST, DELETE"),
        (_, &(Method::GET | Method::HEAD)) => page(&door.console, &request),
        _ => not_allowed("GET, HEAD"),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
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
    response
}

/// A file of the page, where the console is reached: under another port or name it could not sign in either.
fn page<B>(console: &Console, request: &Request<B>) -> Response<ReplyBody> {
    match own_host(console, request) {
        Ok(_) => file(request.uri().path()),
        Err(why) => why.answer(),
    }
}

fn file(path: &str) -> Response<ReplyBody> {
    let Some(file) = files::find(path) else {
        return refusal(StatusCode::NOT_FOUND, "the console has no such file");
    };
    let mut response = Response::new(ReplyBody::full(file.bytes));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    // The next version of the program may have another one under the same name.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// What the page sends: the code of its link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShownLink {
    code: String,
}

async fn sign_in(door: &HttpDoor, request: Request<RequestBody>) -> Response<ReplyBody> {
    if let Err(why) = comes_from_the_page(&door.console, &request) {
        return why.answer();
    }
    if !headers::is_json(request.headers()) {
        let words = "send `Content-Type: application/json`";
        return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, words);
    }
    let nobody = AgentId::new(AgentId::ANONYMOUS);
    let room = || door.reception.bodies.room(&nobody);
    let body = match collect(request.into_body(), LONGEST, PATIENCE, room).await {
        Ok(body) => body,
        Err(untaken) => return refusal(untaken.why.status(), &untaken.why.to_string()),
    };
    let Ok(shown) = serde_json::from_slice::<ShownLink>(&body) else {
        let words = r#"send {"code": "…"}, as it stands behind the # of the link"#;
        return refusal(StatusCode::BAD_REQUEST, words);
    };
    let signed_in = match door.console.sign_in(&shown.code) {
        Ok(signed_in) => signed_in,
        Err(why) => return refusal(StatusCode::UNAUTHORIZED, &why.to_string()),
    };
    let told = json!({"pageKey": signed_in.page_key, "untilMs": signed_in.until_ms});
    let mut response = json(StatusCode::OK, ReplyBody::full(told.to_string()));
    set_cookie(
        &mut response,
        &door.console,
        &signed_in.cookie,
        SIGN_IN_MS / 1000,
    );
    response
}

fn sign_out(door: &HttpDoor, request: &Request<RequestBody>) -> Response<ReplyBody> {
    let number = match browser(&door.console, request) {
        Ok((number, _)) => number,
        Err(why) => return why.answer(),
    };
    door.console.sign_out(number);
    let mut response = status(StatusCode::NO_CONTENT);
    set_cookie(&mut response, &door.console, "", 0);
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

/// The browser that asks, by both its secrets.
fn browser(
    console: &Console,
    request: &Request<RequestBody>,
) -> Result<(u64, Credential), NotSignedIn> {
    comes_from_the_page(console, request)?;
    let headers = request.headers();
    let key = headers::text(headers, &PAGE_KEY).unwrap_or("");
    let cookie = cookie(headers, &console.cookie_name()).unwrap_or("");
    console.judge(cookie, key).ok_or(NotSignedIn::Unknown)
}

/// The value of a cookie, where it stands once.
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
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

/// Judges what the browser itself says of where a request comes from: scripts cannot write these headers.
fn comes_from_the_page<B>(console: &Console, request: &Request<B>) -> Result<(), NotSignedIn> {
    let headers = request.headers();
    let own = own_host(console, request)?;
    let scheme = if console.is_secure() { "https" } else { "http" };
    let site = headers::text(headers, &FETCH_SITE);
    let same_site = site.is_none_or(|site| site == "same-origin");
    let same_origin = match headers.get(ORIGIN) {
        Some(origin) => *origin == format!("{scheme}://{own}"),
        // Of a GET browsers name no origin.
        None => request.method() == Method::GET && site.is_some(),
    };
    match same_site && same_origin {
        true => Ok(()),
        false => Err(NotSignedIn::OtherPage),
    }
}

/// The host and port it is asked at, where it is reached there.
fn own_host<'r, B>(console: &Console, request: &'r Request<B>) -> Result<&'r str, NotSignedIn> {
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let host = headers::text(request.headers(), &HOST);
    let own = authority.or(host).ok_or(NotSignedIn::OtherPage)?;
    if !console.is_secure() && !is_loopback(own) {
        return Err(NotSignedIn::InTheClear);
    }
    let authority = own.parse().map_err(|_| NotSignedIn::OtherPage)?;
    match console.is_reached_at(&authority) {
        true => Ok(own),
        false => Err(NotSignedIn::OtherPort),
    }
}

#[cfg(test)]
mod tests;
