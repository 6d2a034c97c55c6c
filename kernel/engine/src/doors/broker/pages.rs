//! The pages that a person sees during a sign-in. They have no scripts, and no text of a client is markup in them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

use super::clients::Client;
use super::sign_in::SignIn;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:4rem auto;padding:0 1rem;\
color:#1a1a1a;background:#fff}code{overflow-wrap:anywhere}button{font:inherit;padding:.5rem 1.25rem;margin-right:.75rem}\
dt{color:#595959}dd{margin:0 0 .75rem}@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}dt{color:#aaa}}";

/// The policy of all pages: no scripts, no frames, forms only to this gateway.
#[must_use]
pub fn content_security_policy() -> String {
    let style = STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
}

fn render(title: &str, head: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style>{head}</head><body>\
         <h1>{title}</h1>{body}</body></html>\n"
    )
}

/// Asks a person whether a client may act for them. `provider` is the issuer where they sign in next.
#[must_use]
pub fn render_consent(client: &Client, sign_in: &SignIn, provider: &str, action: &str) -> String {
    let named = if client.name.is_empty() {
        "(no name)"
    } else {
        &client.name
    };
    let by = match &client.document_host {
        Some(host) => format!("published by <code>{}</code>", escape(host)),
        None => "which this client chose itself".to_owned(),
    };
    let target = redirect_host(&sign_in.redirect_uri);
    let program = if sign_in.redirect_uri.starts_with("http://") {
        "<p>The answer goes to a program on this computer. Continue only if you have just started it.</p>"
    } else {
        ""
    };
    let mut body = format!(
        "<p>A client asks to use the tools of this gateway as you.</p><dl>\
         <dt>Name, {by}</dt><dd><strong>{}</strong></dd>\
         <dt>Receives the access</dt><dd><code>{}</code></dd>\
         <dt>For</dt><dd><code>{}</code></dd>\
         <dt>You sign in at</dt><dd><code>{}</code></dd></dl>{program}",
        escape(named),
        escape(target),
        escape(&sign_in.resource),
        escape(provider),
    );
    let _ = write!(
        body,
        "<form method=\"post\" action=\"{}\"><input type=\"hidden\" name=\"key\" value=\"{}\">\
         <button name=\"decision\" value=\"allow\">Allow</button>\
         <button name=\"decision\" value=\"deny\">Deny</button></form>",
        escape(action),
        escape(&sign_in.key()),
    );
    render("Allow this client?", "", &body)
}

/// Sends the browser on. A redirect of the form's response would be held to `form-action`, and so would every further
/// one on the way through the provider.
#[must_use]
pub fn render_forward(url: &str) -> String {
    let url = escape(url);
    let head = format!("<meta http-equiv=\"refresh\" content=\"0;url={url}\">");
    let body =
        format!("<p><a href=\"{url}\" rel=\"noreferrer\">Continue</a> if nothing happens.</p>");
    render("One moment", &head, &body)
}

/// Says why a sign-in does not continue.
#[must_use]
pub fn render_failure(why: &str) -> String {
    let body = format!("<p>{}</p>", escape(why));
    render("The sign-in did not continue", "", &body)
}

/// The scheme, host and port of a valid redirect URI.
fn redirect_host(uri: &str) -> &str {
    let begin = uri.find("://").map_or(0, |at| at + 3);
    let end = uri[begin..].find(['/', '?']);
    &uri[..end.map_or(uri.len(), |at| begin + at)]
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::doors::broker::params::Params;
    use crate::doors::broker::sign_in::AuthorizationRequest;

    /// EXT-224: names are text; the page says who receives the access and cannot be framed.
    #[test]
    fn consent_page_shows_names_as_text() {
        let client = Client {
            id: "c".into(),
            name: "<script>alert(1)</script>\" onload='x' &".into(),
            redirect_uris: vec!["https://a.example/cb".into()],
            document_host: None,
        };
        let challenge = URL_SAFE_NO_PAD.encode([1; 32]);
        let query = format!(
            "redirect_uri=https://a.example/cb&response_type=code&code_challenge_method=S256&code_challenge={challenge}"
        );
        let params = Params::parse(&query).unwrap();
        let request =
            AuthorizationRequest::parse(&params, &client, &["https://h/mcp".into()]).unwrap();
        let sign_in = SignIn::begin(request, &client, [1; 32], 0);
        let page = render_consent(
            &client,
            &sign_in,
            "https://idp",
            "https://h/oauth/authorize",
        );
        assert!(
            !page.contains("<script") && !page.contains("onload='"),
            "{page}"
        );
        for wanted in [
            "&lt;script&gt;",
            "https://a.example<",
            "https://h/mcp",
            "https://idp",
        ] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
        assert!(!page.contains("on this computer"));
        let policy = content_security_policy();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"));
        assert!(!policy.contains("script-src"), "none by default");
        let forward = render_forward("https://idp/a?x=\"><script>&y=1");
        assert!(
            !forward.contains("<script>") && forward.contains("&amp;y=1"),
            "{forward}"
        );
    }
}
