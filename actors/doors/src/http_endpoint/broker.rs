//! The broker over HTTP: its metadata, the pages of a sign-in, and the endpoints of clients.
//!
//! A browser is known by a cookie for each sign-in, which no other site's form can send (`SameSite`) and no script can
//! read; with TLS its name has the prefix `__Host-`, so that no neighbouring host can set it.

use std::time::Duration;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    ORIGIN, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode};
use mgp_engine::doors::broker::OauthError;
use mgp_engine::doors::broker::clients::DOCUMENT_BYTES_MAX;
use mgp_engine::doors::broker::pages;
use mgp_engine::doors::broker::params::Params;
use mgp_engine::doors::broker::sign_in::{SIGN_IN_LIFETIME_MS, SignIn, UnknownSignIn};
use mgp_transports::http::body::{ReplyBody, RequestBody, collect};
use mgp_transports::http::server::HttpPeer;
use serde_json::{Value, json};

use super::console::cookie_value;
use super::headers::header_text;
use super::responses::json_response;
use super::{HttpEndpoint, empty_response, method_not_allowed};
use crate::oauth::broker::{
    AUTHORIZE_PATH, Broker, CALLBACK_PATH, REGISTER_PATH, REVOKE_PATH, SignInFailure, SignInStep,
    TOKEN_PATH, TokenRequest,
};

/// Metadata (RFC 8414).
const METADATA_PATH: &str = "/.well-known/oauth-authorization-server";
/// The header of a DPoP proof.
pub(super) const PROOF: HeaderName = HeaderName::from_static("dpop");
/// The browser's statement of a request's origin (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Longest form, in bytes: an assertion or refresh token, a client id and a resource.
const FORM_BYTES_MAX: usize = 32 << 10;
/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn is_broker_path(broker: &Broker, path: &str) -> bool {
    path.starts_with("/oauth/") || is_metadata_path(broker, path)
}

/// The path of an issuer follows the well-known one (RFC 8414, section 3.1).
fn is_metadata_path(broker: &Broker, path: &str) -> bool {
    let rest = path.strip_prefix(METADATA_PATH);
    rest.is_some_and(|rest| {
        rest.is_empty() || broker.issuer().strip_prefix(broker.issuer_origin()) == Some(rest)
    })
}

/// Answers a request at one of the open endpoints.
pub(super) async fn handle(
    endpoint: &HttpEndpoint,
    broker: &Broker,
    request: Request<RequestBody>,
    peer: &HttpPeer,
) -> Response<ReplyBody> {
    let mut response = match broker.count_request(peer.addr.ip()) {
        Ok(()) => route(endpoint, broker, request).await,
        Err(wait) => reject_rate(wait),
    };
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

async fn route(
    endpoint: &HttpEndpoint,
    broker: &Broker,
    request: Request<RequestBody>,
) -> Response<ReplyBody> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    if is_metadata_path(broker, &path) {
        if *request.method() != Method::GET {
            return method_not_allowed("GET");
        }
        let metadata = broker.metadata().to_string();
        return json_response(StatusCode::OK, ReplyBody::full(metadata));
    }
    match (path.as_str(), request.method()) {
        (AUTHORIZE_PATH, &Method::GET) => show_consent(broker, &query, endpoint.secure).await,
        (AUTHORIZE_PATH, &Method::POST) => answer_consent(endpoint, broker, request).await,
        (CALLBACK_PATH, &Method::GET) => {
            finish(broker, request.headers(), &query, endpoint.secure).await
        }
        (REGISTER_PATH, &Method::POST) => register(endpoint, broker, request).await,
        (TOKEN_PATH, &Method::POST) => issue_tokens(endpoint, broker, request).await,
        (REVOKE_PATH, &Method::POST) => revoke(endpoint, broker, request).await,
        (AUTHORIZE_PATH, _) => method_not_allowed("GET, POST"),
        (CALLBACK_PATH, _) => method_not_allowed("GET"),
        (REGISTER_PATH | TOKEN_PATH | REVOKE_PATH, _) => method_not_allowed("POST"),
        _ => super::refusal_response(StatusCode::NOT_FOUND, "no such path"),
    }
}

fn reject_rate(wait: Duration) -> Response<ReplyBody> {
    let error = OauthError::new(
        "temporarily_unavailable",
        "this address sends too many requests; try again in a second",
    );
    let mut response = error_response(&error);
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let seconds = HeaderValue::from(wait.as_secs() + 1);
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

fn error_response(error: &OauthError) -> Response<ReplyBody> {
    let status = match error.error {
        "invalid_client" => StatusCode::UNAUTHORIZED,
        "temporarily_unavailable" => StatusCode::SERVICE_UNAVAILABLE,
        "server_error" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    let body = json!({"error": error.error, "error_description": error.description});
    let mut response = json_response(status, ReplyBody::full(body.to_string()));
    if status == StatusCode::UNAUTHORIZED {
        let basic = HeaderValue::from_static(r#"Basic realm="mgp""#);
        response.headers_mut().insert(WWW_AUTHENTICATE, basic);
    }
    response
}

fn json_result(status: StatusCode, result: Result<Value, OauthError>) -> Response<ReplyBody> {
    match result {
        Ok(value) => json_response(status, ReplyBody::full(value.to_string())),
        Err(error) => error_response(&error),
    }
}

/// A body of an unknown caller, counted among those of all unknown callers.
async fn read_body(
    endpoint: &HttpEndpoint,
    request: Request<RequestBody>,
    longest: usize,
) -> Result<bytes::Bytes, Box<Response<ReplyBody>>> {
    let budget = || endpoint.endpoint.message_budgets.anonymous_budget();
    let body = collect(request.into_body(), longest, BODY_TIMEOUT, budget).await;
    body.map_err(|rejected| {
        let error = OauthError::invalid_request(rejected.error.to_string());
        let mut response = error_response(&error);
        *response.status_mut() = rejected.error.status();
        Box::new(response)
    })
}

fn has_content_type(headers: &HeaderMap, wanted: &str) -> bool {
    let value = header_text(headers, &CONTENT_TYPE).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(wanted)
}

async fn read_form(
    endpoint: &HttpEndpoint,
    request: Request<RequestBody>,
) -> Result<String, Box<Response<ReplyBody>>> {
    if !has_content_type(request.headers(), "application/x-www-form-urlencoded") {
        let why = "send `Content-Type: application/x-www-form-urlencoded`";
        return Err(Box::new(error_response(&OauthError::invalid_request(why))));
    }
    let body = read_body(endpoint, request, FORM_BYTES_MAX).await?;
    String::from_utf8(body.to_vec()).map_err(|_| {
        Box::new(error_response(&OauthError::invalid_request(
            "the form is no UTF-8",
        )))
    })
}

async fn register(
    endpoint: &HttpEndpoint,
    broker: &Broker,
    request: Request<RequestBody>,
) -> Response<ReplyBody> {
    if !has_content_type(request.headers(), "application/json") {
        let why = "send `Content-Type: application/json`";
        return error_response(&OauthError::new("invalid_client_metadata", why));
    }
    match read_body(endpoint, request, DOCUMENT_BYTES_MAX).await {
        Ok(body) => json_result(StatusCode::CREATED, broker.register(&body)),
        Err(response) => *response,
    }
}

async fn issue_tokens(
    endpoint: &HttpEndpoint,
    broker: &Broker,
    request: Request<RequestBody>,
) -> Response<ReplyBody> {
    let headers = request.headers().clone();
    match read_form(endpoint, request).await {
        Ok(form) => {
            let issued = broker.issue_tokens(&token_request(&headers, &form)).await;
            json_result(StatusCode::OK, issued)
        }
        Err(response) => *response,
    }
}

async fn revoke(
    endpoint: &HttpEndpoint,
    broker: &Broker,
    request: Request<RequestBody>,
) -> Response<ReplyBody> {
    let headers = request.headers().clone();
    match read_form(endpoint, request).await {
        Ok(form) => match broker.revoke(&token_request(&headers, &form)).await {
            Ok(()) => empty_response(StatusCode::OK),
            Err(error) => error_response(&error),
        },
        Err(response) => *response,
    }
}

fn token_request<'r>(headers: &'r HeaderMap, form: &'r str) -> TokenRequest<'r> {
    let proofs = headers.get_all(&PROOF).iter();
    TokenRequest {
        form,
        authorization: header_text(headers, &AUTHORIZATION),
        proofs: proofs
            .map(|value| value.to_str().unwrap_or_default())
            .collect(),
    }
}

/// A page: it cannot be framed, runs no script, and says nothing of its address elsewhere.
fn page_response(status: StatusCode, page: String) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::full(page));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let policy = HeaderValue::from_str(&pages::content_security_policy());
    headers.insert("content-security-policy", policy.expect("base64 and words"));
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        // Without an origin the form's own request could not be told from that of another site.
        ("referrer-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn failure_page(status: StatusCode, why: &str) -> Response<ReplyBody> {
    page_response(status, pages::render_failure(why))
}

fn cookie_name(broker: &Broker, slot: u8, secure: bool) -> String {
    if secure {
        return format!("__Host-mgp_sign_in_{slot}");
    }
    // All ports of a host share their cookies.
    let port = broker.issuer().rsplit(':').next().unwrap_or_default();
    let port: String = port.chars().filter(char::is_ascii_digit).collect();
    format!("mgp_sign_in_{port}_{slot}")
}

/// Stores a cookie; an empty one is removed.
fn set_cookie(response: &mut Response<ReplyBody>, name: &str, value: &str, secure: bool) {
    let secs = if value.is_empty() {
        0
    } else {
        SIGN_IN_LIFETIME_MS / 1000
    };
    let secure = if secure { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; Max-Age={secs}; HttpOnly; SameSite=Lax{secure}");
    let cookie = HeaderValue::from_str(&cookie).expect("a name, base64 and numbers");
    response.headers_mut().insert(SET_COOKIE, cookie);
}

/// Whether the browser reaches the gateway with TLS, at a proxy in front of it too.
fn is_secure(broker: &Broker, secure: bool) -> bool {
    secure || broker.issuer().starts_with("https://")
}

async fn show_consent(broker: &Broker, query: &str, secure: bool) -> Response<ReplyBody> {
    let (client, sign_in, cookie) = match broker.begin(query).await {
        Ok(begun) => begun,
        Err(error) => return failure_page(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let action = broker.url(AUTHORIZE_PATH);
    let page = pages::render_consent(&client, &sign_in, broker.provider_issuer(), &action);
    let mut response = page_response(StatusCode::OK, page);
    let secure = is_secure(broker, secure);
    let name = cookie_name(broker, sign_in.slot(), secure);
    set_cookie(&mut response, &name, &cookie, secure);
    response
}

async fn answer_consent(
    endpoint: &HttpEndpoint,
    broker: &Broker,
    request: Request<RequestBody>,
) -> Response<ReplyBody> {
    let headers = request.headers().clone();
    let is_own = header_text(&headers, &ORIGIN)
        .is_some_and(|origin| origin == broker.issuer_origin())
        && header_text(&headers, &FETCH_SITE).is_none_or(|site| site == "same-origin");
    if !is_own {
        let why = "Only the page of this gateway may send this.";
        return failure_page(StatusCode::FORBIDDEN, why);
    }
    let form = match read_form(endpoint, request).await {
        Ok(form) => form,
        Err(response) => return *response,
    };
    let Ok(params) = Params::parse(&form) else {
        return failure_page(StatusCode::BAD_REQUEST, "The form is not that of the page.");
    };
    let key = params.get("key").unwrap_or_default();
    let secure = is_secure(broker, endpoint.secure);
    let cookie = find_cookie(broker, &headers, key, secure).unwrap_or_default();
    let answered = match params.get("decision") {
        Some("allow") => broker.approve(cookie, key).await,
        Some("deny") => broker.deny(cookie, key),
        Some(_) | None => Err(SignInFailure::Unknown(UnknownSignIn)),
    };
    match answered {
        Ok(step) => {
            let mut response = page_response(StatusCode::OK, pages::render_forward(&step.url));
            store_step(&mut response, broker, &step, secure);
            response
        }
        Err(failure) => show_failure(failure),
    }
}

/// The provider's answer: the only redirect URI that the kernel has there.
async fn finish(
    broker: &Broker,
    headers: &HeaderMap,
    query: &str,
    secure: bool,
) -> Response<ReplyBody> {
    let Ok(params) = Params::parse(query) else {
        return failure_page(
            StatusCode::BAD_REQUEST,
            "The answer of the provider is malformed.",
        );
    };
    let key = params.get("state").unwrap_or_default();
    let secure = is_secure(broker, secure);
    let cookie = find_cookie(broker, headers, key, secure).unwrap_or_default();
    match broker.finish(cookie, key, query).await {
        Ok(step) => {
            let Ok(location) = HeaderValue::from_str(&step.url) else {
                return failure_page(StatusCode::BAD_REQUEST, "The client cannot be answered.");
            };
            let page = pages::render_forward(&step.url);
            let mut response = page_response(StatusCode::SEE_OTHER, page);
            response.headers_mut().insert(LOCATION, location);
            store_step(&mut response, broker, &step, secure);
            response
        }
        Err(failure) => show_failure(failure),
    }
}

fn store_step(
    response: &mut Response<ReplyBody>,
    broker: &Broker,
    step: &SignInStep,
    secure: bool,
) {
    let name = cookie_name(broker, step.slot, secure);
    let value = step.cookie.as_deref().unwrap_or_default();
    set_cookie(response, &name, value, secure);
}

fn show_failure(failure: SignInFailure) -> Response<ReplyBody> {
    match failure {
        SignInFailure::Unknown(unknown) => {
            failure_page(StatusCode::BAD_REQUEST, &unknown.to_string())
        }
        SignInFailure::Failed(why) => failure_page(StatusCode::BAD_GATEWAY, &why),
    }
}

/// The cookie of the sign-in with this key, if it occurs once.
fn find_cookie<'h>(
    broker: &Broker,
    headers: &'h HeaderMap,
    key: &str,
    secure: bool,
) -> Option<&'h str> {
    let name = cookie_name(broker, SignIn::slot_of_key(key)?, secure);
    cookie_value(headers, &name)
}
