//! A person with a browser, for sign-ins: cookies, redirects, pages that send the browser on, and the page that asks
//! whether a client may act for them.

use std::collections::BTreeMap;

use http::header::{CONTENT_TYPE, COOKIE, HeaderName, LOCATION, ORIGIN, SET_COOKIE};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::HttpClient;

/// A browser.
#[derive(Debug, Clone, Default)]
pub struct Browser {
    /// By host, as all ports of a host share their cookies.
    pub cookies: BTreeMap<String, BTreeMap<String, String>>,
}

/// What a browser got.
#[derive(Debug, Clone)]
pub struct Page {
    /// Where.
    pub url: String,
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
}

impl Page {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap_or_default())
    }

    /// The value of a hidden field of its form.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<String> {
        let (_, rest) = self.text.split_once(&format!("name=\"{name}\" value=\""))?;
        Some(unescape(rest.split_once('"')?.0))
    }

    /// Where the page sends the browser.
    #[must_use]
    pub fn next(&self) -> Option<String> {
        if self.status.is_redirection() {
            return Some(join(&self.url, self.header(LOCATION.as_str())));
        }
        let (_, rest) = self
            .text
            .split_once("http-equiv=\"refresh\" content=\"0;url=")?;
        Some(unescape(rest.split_once('"')?.0))
    }
}

fn unescape(text: &str) -> String {
    let text = text.replace("&quot;", "\"").replace("&#39;", "'");
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&amp;", "&")
}

fn join(base: &str, to: &str) -> String {
    if to.contains("://") {
        return to.to_owned();
    }
    format!("{}{to}", origin(base))
}

/// Scheme, host and port of a URL.
#[must_use]
pub fn origin(url: &str) -> String {
    let uri: Uri = url.parse().unwrap_or_default();
    let (scheme, authority) = (uri.scheme_str().unwrap_or("http"), uri.authority());
    format!("{scheme}://{}", authority.map_or("", |it| it.as_str()))
}

fn host(url: &str) -> String {
    let uri: Uri = url.parse().unwrap_or_default();
    uri.host().unwrap_or_default().to_owned()
}

impl Browser {
    /// Opens an address, without going on.
    pub async fn get(&mut self, url: &str) -> Page {
        self.send(Method::GET, url, "", &[]).await
    }

    /// Sends a form from a page of this origin.
    pub async fn post(&mut self, url: &str, form: &str, from: &str) -> Page {
        let kind = "application/x-www-form-urlencoded";
        self.send(
            Method::POST,
            url,
            form,
            &[(CONTENT_TYPE, kind), (ORIGIN, from)],
        )
        .await
    }

    /// Sends a request with its cookies, and stores those of the answer.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn send(
        &mut self,
        method: Method,
        url: &str,
        body: &str,
        headers: &[(HeaderName, &str)],
    ) -> Page {
        let mut client = HttpClient::new(url);
        client.headers.clear();
        let own = self.cookies.entry(host(url)).or_default();
        let pairs: Vec<String> = own
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !pairs.is_empty() {
            client.set(COOKIE, &pairs.join("; "));
        }
        for (name, value) in headers {
            client.set(name.clone(), value);
        }
        let answer = client
            .send(method, body.to_owned())
            .await
            .expect("an answer");
        for cookie in answer.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap_or_default();
            let (name, value) = cookie
                .split(';')
                .next()
                .and_then(|pair| pair.split_once('='))
                .unwrap_or_default();
            if value.is_empty()
                || cookie.contains("Max-Age=0")
                || cookie.contains("expires=Thu, 01 Jan 1970")
            {
                own.remove(name);
            } else {
                own.insert(name.to_owned(), value.to_owned());
            }
        }
        Page {
            url: url.to_owned(),
            status: answer.status,
            headers: answer.headers.clone(),
            text: answer.text().await,
        }
    }

    /// Agrees on the page that asks for it.
    ///
    /// # Panics
    /// When the page has no form.
    pub async fn answer(&mut self, page: &Page, decision: &str) -> Page {
        let key = page.field("key").unwrap_or_else(|| panic!("{page:?}"));
        let url = page.url.split('?').next().unwrap_or_default().to_owned();
        let form = format!("key={key}&decision={decision}");
        self.post(&url, &form, &origin(&url)).await
    }

    /// Opens an address and goes on, allowing what it is asked for, up to an address that begins with `end`: that is not
    /// opened.
    ///
    /// # Panics
    /// When it ends elsewhere.
    pub async fn follow(&mut self, url: &str, end: &str) -> String {
        let mut page = self.get(url).await;
        for _ in 0..20 {
            let next = match page.next() {
                Some(next) => next,
                None if page.field("key").is_some() => {
                    page = self.answer(&page, "allow").await;
                    continue;
                }
                None => panic!("it ends at {page:?}"),
            };
            if next.starts_with(end) {
                return next;
            }
            page = self.get(&next).await;
        }
        panic!("it goes on and on: {page:?}");
    }
}
