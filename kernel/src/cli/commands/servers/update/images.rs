//! Queries the registry of a container image for its versions (OCI distribution, `GET /v2/NAME/tags/list`),
//! anonymously: images that require a login must be updated by hand.

use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, LINK, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use mgp_engine::servers::login::challenge::find_parameter;
use mgp_transports::http::client::{Client, Response, parse_url, read_json};
use mgp_transports::http::is_safe_url;
use mgp_transports::http::proxy::Outbound;
use serde::Deserialize;

use super::package::{compare_versions, is_exact};

/// Limit of the whole query.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one response: a thousand tags have about ten KiB.
const RESPONSE_BYTES_MAX: usize = 4 << 20;
/// Most pages of a thousand tags each; images with more must be updated by hand.
const PAGES_MAX: usize = 10;
/// The registry of an image that names none.
const DOCKER_HUB: &str = "registry-1.docker.io";

#[derive(Deserialize)]
struct TagList {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
}

/// The newest version of an image with the form of `version`, or `wanted` if it exists.
pub(super) fn newest_image_version(
    outbound: Outbound,
    image: &str,
    version: Option<&str>,
    wanted: Option<&str>,
) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let asking = list_tags(Client::new(outbound), image);
    let tags = runtime.block_on(async { tokio::time::timeout(REQUEST_TIMEOUT, asking).await });
    let tags = tags.map_err(|_| format!("no answer in {} s", REQUEST_TIMEOUT.as_secs()))??;
    match wanted {
        Some(wanted) if tags.iter().any(|tag| tag == wanted) => Ok(wanted.to_owned()),
        Some(wanted) => Err(format!("its registry knows no version {wanted}")),
        None => {
            newest_tag(&tags, version).ok_or_else(|| "its registry knows no version".to_owned())
        }
    }
}

/// The newest tag of the same form: `1.2-alpine` is no newer `1.1`.
fn newest_tag(tags: &[String], like: Option<&str>) -> Option<String> {
    let form = |tag: &str| {
        let bare = tag.strip_prefix('v').unwrap_or(tag);
        let (numbers, rest) = bare.split_once('-').unwrap_or((bare, ""));
        (
            bare.len() < tag.len(),
            numbers.split('.').count(),
            rest.to_owned(),
        )
    };
    let exact = |tag: &&String| is_exact(tag.strip_prefix('v').unwrap_or(tag), 2);
    let alike = |tag: &&String| match like {
        Some(like) => form(tag) == form(like),
        None => form(tag).2.is_empty(),
    };
    let all = tags.iter().filter(exact).filter(alike);
    all.max_by(|one, other| compare_versions(one, other))
        .cloned()
}

async fn list_tags(client: Client, image: &str) -> Result<Vec<String>, String> {
    let (host, path) = parse_image_name(image);
    let local = host.starts_with("localhost") || host.starts_with("127.0.0.1");
    let scheme = if local { "http" } else { "https" };
    let mut next = format!("/v2/{path}/tags/list?n=1000");
    let (mut all, mut token) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let url = format!("{scheme}://{host}{next}");
        let mut answer = get(&client, &url, token.as_deref()).await?;
        if answer.status == StatusCode::UNAUTHORIZED && token.is_none() {
            token = Some(fetch_anonymous_token(&client, &answer).await?);
            answer = get(&client, &url, token.as_deref()).await?;
        }
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
                return Err(format!("{host} shows nobody such an image"));
            }
            status => return Err(format!("{host} answers {status}")),
        }
        let more = answer.headers.get(LINK).and_then(|link| link.to_str().ok());
        let more = more.and_then(next_page_path).map(str::to_owned);
        let body = read_json(answer.body, RESPONSE_BYTES_MAX).await;
        let body = body.map_err(|e| e.to_string())?;
        let list: TagList = serde_json::from_slice(&body)
            .map_err(|_| format!("{host} answers something else than tags"))?;
        all.extend(list.tags.into_iter().flatten());
        match more {
            Some(path) => next = path,
            None => return Ok(all),
        }
    }
    Err(format!(
        "{host} has more versions of it than are looked through"
    ))
}

async fn get(client: &Client, url: &str, token: Option<&str>) -> Result<Response, String> {
    let mut headers = HeaderMap::new();
    if let Some(mut value) = token.and_then(|it| HeaderValue::try_from(format!("Bearer {it}")).ok())
    {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let url = parse_url(url).map_err(|e| e.to_string())?;
    let asked = client.request(Method::GET, &url, headers, None).await;
    asked.map_err(|e| e.to_string())
}

/// The anonymous token of a registry.
async fn fetch_anonymous_token(client: &Client, answer: &Response) -> Result<String, String> {
    let none = || "its registry wants a login".to_owned();
    let challenge = answer.headers.get(WWW_AUTHENTICATE);
    let challenge = challenge
        .and_then(|value| value.to_str().ok())
        .ok_or_else(none)?;
    let said = |name: &str| find_parameter(challenge, name);
    let realm = said("realm")
        .filter(|realm| is_safe_url(realm))
        .ok_or_else(none)?;
    let mut url = url::Url::parse(&realm).map_err(|_| none())?;
    for name in ["service", "scope"] {
        if let Some(value) = said(name) {
            url.query_pairs_mut().append_pair(name, &value);
        }
    }
    let answer = get(client, url.as_str(), None).await?;
    let body = read_json(answer.body, RESPONSE_BYTES_MAX).await;
    let body = body.map_err(|e| e.to_string())?;
    let given: TokenResponse = serde_json::from_slice(&body).map_err(|_| none())?;
    given.token.or(given.access_token).ok_or_else(none)
}

/// The registry, and the name there: `db` is `library/db` at Docker's, `ghcr.io/acme/db` is at ghcr.io.
fn parse_image_name(image: &str) -> (String, String) {
    let first = image.split_once('/');
    match first {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => {
            let host = if host == "docker.io" {
                DOCKER_HUB
            } else {
                host
            };
            (host.to_owned(), path.to_owned())
        }
        Some(_) => (DOCKER_HUB.to_owned(), image.to_owned()),
        None => (DOCKER_HUB.to_owned(), format!("library/{image}")),
    }
}

/// The path of the next page, on the same registry.
fn next_page_path(link: &str) -> Option<&str> {
    let (path, rest) = link.strip_prefix('<')?.split_once('>')?;
    (rest.contains("rel=\"next\"") && path.starts_with('/') && !path.starts_with("//"))
        .then_some(path)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn versions_of_the_same_form_are_compared() {
        let tags = [
            "latest",
            "1.9.0",
            "1.10.0",
            "2.0.0-rc.1",
            "1.11.0-alpine",
            "2.1",
            "v3.0.0",
        ];
        let tags = tags.map(str::to_owned);
        assert_eq!(newest_tag(&tags, Some("1.2.0")).as_deref(), Some("1.10.0"));
        assert_eq!(
            newest_tag(&tags, Some("1.2.0-alpine")).as_deref(),
            Some("1.11.0-alpine")
        );
        assert_eq!(newest_tag(&tags, Some("2.0")).as_deref(), Some("2.1"));
        assert_eq!(newest_tag(&tags, Some("v1.0.0")).as_deref(), Some("v3.0.0"));
        assert_eq!(newest_tag(&tags, Some("1.0.0.0")), None);
    }

    #[test]
    fn an_image_has_a_registry() {
        for (image, host, path) in [
            ("db", DOCKER_HUB, "library/db"),
            ("acme/db", DOCKER_HUB, "acme/db"),
            ("docker.io/acme/db", DOCKER_HUB, "acme/db"),
            ("ghcr.io/acme/db", "ghcr.io", "acme/db"),
            ("localhost:5000/db", "localhost:5000", "db"),
        ] {
            assert_eq!(
                parse_image_name(image),
                (host.to_owned(), path.to_owned()),
                "{image}"
            );
        }
        assert_eq!(
            next_page_path("</v2/x?n=1>; rel=\"next\""),
            Some("/v2/x?n=1")
        );
        assert_eq!(next_page_path("<https://evil.test/x>; rel=\"next\""), None);
        assert_eq!(next_page_path("<//evil.test/x>; rel=\"next\""), None);
    }

    /// A registry that lists tags for its anonymous token.
    #[test]
    fn registries_are_queried_anonymously() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let own = at.clone();
        let serving = thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..4 {
                let (mut stream, _) = listener.accept().unwrap();
                let reader = BufReader::new(stream.try_clone().unwrap());
                let lines = reader.lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let known = head
                    .iter()
                    .any(|line| line.to_lowercase().ends_with("bearer open"));
                let (more, body) = match (&*head[0], known) {
                    (line, _) if line.starts_with("GET /token?") => ("", r#"{"token":"open"}"#),
                    (line, true) if line.contains("last=") => ("", r#"{"tags":["1.4.0"]}"#),
                    (_, true) => (
                        "link: </v2/acme/db/tags/list?last=x>; rel=\"next\"\r\n",
                        r#"{"tags":["1.3.0","latest"]}"#,
                    ),
                    (_, false) => ("", ""),
                };
                let answer = if known || !body.is_empty() {
                    format!(
                        "HTTP/1.1 200 OK\r\n{more}content-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    )
                } else {
                    format!(
                        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer realm=\"http://{own}/token\",service=\"s\",scope=\"repository:acme/db:pull\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    )
                };
                stream.write_all(answer.as_bytes()).unwrap();
                asked.push(head[0].clone());
            }
            asked
        });
        let image = format!("{at}/acme/db");
        assert_eq!(
            newest_image_version(Outbound::default(), &image, Some("1.2.0"), None),
            Ok("1.4.0".to_owned())
        );
        let asked = serving.join().unwrap();
        assert!(
            asked[1].starts_with("GET /token?service=s&scope=repository%3Aacme%2Fdb%3Apull "),
            "{asked:?}"
        );
    }
}
