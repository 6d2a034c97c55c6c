//! The confused deputy and its relatives (MCP, "Security Best Practices"; RFC 9700): each attack, and what it gets.

use http::Method;
use http::header::{CONTENT_TYPE, ORIGIN};
use mgp_tests::harness::wait_until;

use super::*;

/// EXT-222: nothing is answered at an address that the client did not register, and nobody is sent there.
#[tokio::test]
async fn foreign_redirect_uri_is_answered_by_a_page() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let metadata = json!({"client_name": "Evil", "redirect_uris": ["https://evil.example/cb"]});
    let (_, evil) = scene.register(&metadata).await;
    let evil = evil["client_id"].as_str().unwrap();
    let mut browser = Browser::default();
    let refused = [
        (&*client, "redirect_uri", "https://evil.example/cb"),
        (&*client, "redirect_uri", "http://127.0.0.1:7777/other"),
        (&*client, "redirect_uri", "http://127.0.0.1:7777/callback/"),
        (&*client, "redirect_uri", "http://127.0.0.1:7777/callback#x"),
        (
            &*client,
            "redirect_uri",
            "http://127.0.0.1:7777@evil.example/callback",
        ),
        (
            &*client,
            "redirect_uri",
            "http://127.0.0.1.evil.example:7777/callback",
        ),
        (evil, "redirect_uri", REDIRECT),
        (&*client, "client_id", "unknown"),
        (&*client, "client_id", ""),
        (&*client, "response_type", "token"),
        (&*client, "code_challenge", ""),
        (&*client, "code_challenge_method", "plain"),
        (&*client, "resource", "https://other.example/mcp"),
    ];
    for (client, name, value) in refused {
        let url = scene.authorize_url(client, &[(name, value)]);
        let page = browser.get(&url).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{name} {value}");
        assert_eq!(
            (page.next(), page.header("set-cookie")),
            (None, ""),
            "{name} {value}"
        );
    }
    // On this machine any port is right (RFC 8252, section 7.3).
    let other_port = [("redirect_uri", "http://127.0.0.1:9999/callback")];
    let page = browser
        .get(&scene.authorize_url(&client, &other_port))
        .await;
    assert_eq!(page.status, StatusCode::OK);
}

/// EXT-224: the page says who gets the access, as text that cannot forge a line, and nobody can frame it.
#[tokio::test]
async fn consent_page_cannot_be_forged_or_framed() {
    let scene = Scene::start("").await;
    let client = scene
        .client("Desk\r\n\u{202e}<script>alert(1)</script>\u{200b}")
        .await;
    let page = scene.ask(&mut Browser::default(), &client).await;
    assert!(
        page.text
            .contains("Desk&lt;script&gt;alert(1)&lt;/script&gt;<"),
        "{}",
        page.text
    );
    assert!(
        page.text.contains("http://127.0.0.1:7777<"),
        "{}",
        page.text
    );
    assert!(page.text.contains(&scene.provider.issuer), "{}", page.text);
    let policy = page.header("content-security-policy");
    for part in [
        "default-src 'none'",
        "frame-ancestors 'none'",
        "form-action 'self'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert_eq!(page.header("x-frame-options"), "DENY");
    assert_eq!(page.header("cache-control"), "no-store");
    let cookie = page.header("set-cookie");
    assert!(cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
}

/// EXT-224, EXT-225: consent counts for the client that was shown, from the page itself, once, and in the browser that was
/// asked; it is never skipped.
#[tokio::test]
async fn consent_is_for_the_shown_client_and_its_browser() {
    let scene = Scene::start("").await;
    let (one, other) = (scene.client("One").await, scene.client("Other").await);
    let (mut browser, mut stranger) = (Browser::default(), Browser::default());
    scene.browse(&mut browser, &one).await;
    // Agreed to one client: the next one is asked about, and the first one again.
    for client in [&other, &one] {
        let page = scene.ask(&mut browser, client).await;
        assert!(page.next().is_none() && page.field("key").is_some());
    }
    let at = format!("{}/oauth/authorize", scene.issuer());
    let own = scene.ask(&mut browser, &one).await;
    let foreign = scene.ask(&mut stranger, &other).await;
    let allow = |page: &Page| format!("key={}&decision=allow", page.field("key").unwrap());
    // The stranger's client with the cookie of this browser, and the other way round.
    let crossed = browser.post(&at, &allow(&foreign), &scene.issuer()).await;
    assert_eq!(
        (crossed.status, crossed.next()),
        (StatusCode::BAD_REQUEST, None)
    );
    let crossed = Browser::default()
        .post(&at, &allow(&own), &scene.issuer())
        .await;
    assert_eq!(crossed.status, StatusCode::BAD_REQUEST);
    // From a page of somebody else, or of nobody.
    let mut copy = browser.clone();
    let port = format!("http://localhost:{}", 1);
    for origin in ["https://evil.example", "null", &*port] {
        let forged = copy.post(&at, &allow(&own), origin).await;
        assert_eq!(
            (forged.status, forged.next()),
            (StatusCode::FORBIDDEN, None),
            "{origin}"
        );
    }
    let without = copy
        .send(Method::POST, &at, &allow(&own), &[(CONTENT_TYPE, FORM)])
        .await;
    assert_eq!(without.status, StatusCode::FORBIDDEN);
    let site = http::HeaderName::from_static("sec-fetch-site");
    let issuer = scene.issuer();
    let headers = [
        (CONTENT_TYPE, FORM),
        (ORIGIN, &*issuer),
        (site, "cross-site"),
    ];
    let foreign_site = copy.send(Method::POST, &at, &allow(&own), &headers).await;
    assert_eq!(foreign_site.status, StatusCode::FORBIDDEN);
    // The page itself, once.
    let allowed = browser.post(&at, &allow(&own), &scene.issuer()).await;
    assert!(allowed.next().is_some(), "{allowed:?}");
    let again = copy.post(&at, &allow(&own), &scene.issuer()).await;
    assert_eq!(
        (again.status, again.next()),
        (StatusCode::BAD_REQUEST, None)
    );
    // A person who denies sends nobody to the provider.
    let page = scene.ask(&mut browser, &one).await;
    let denied = browser.answer(&page, "deny").await.next().unwrap();
    assert!(
        denied.starts_with(&format!("{REDIRECT}?error=access_denied")),
        "{denied}"
    );
}

/// EXT-225: the answer of the provider counts in the browser that was sent there, once, and only after consent.
#[tokio::test]
async fn callback_counts_once_in_its_own_browser() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let (mut browser, mut victim) = (Browser::default(), Browser::default());
    let page = scene.ask(&mut browser, &client).await;
    let back = scene.allow(&mut browser, &page).await;
    // The attacker's own answer, in a browser that began nothing or something else.
    for browser in [&mut Browser::default(), &mut victim] {
        let page = browser.get(&back).await;
        assert_eq!((page.status, page.next()), (StatusCode::BAD_REQUEST, None));
        scene.ask(browser, &client).await;
    }
    let victim_page = scene.ask(&mut victim, &client).await;
    // Before the person agreed there is no sign-in at the provider.
    let skipped = victim_page.field("key").unwrap();
    let callback = format!("{}/oauth/callback", scene.issuer());
    let iss = scene.provider.issuer.clone();
    let skipped = format!(
        "{callback}?{}",
        form(&[("code", "c"), ("state", &skipped), ("iss", &iss)])
    );
    assert_eq!(victim.get(&skipped).await.status, StatusCode::BAD_REQUEST);
    for bad in [
        String::new(),
        "?code=c".to_owned(),
        format!("{}&state=x", back.split_once("callback").unwrap().1),
    ] {
        let page = browser.get(&format!("{callback}{bad}")).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{bad}");
    }
    let mut copy = browser.clone();
    let good = browser.get(&back).await;
    assert_eq!(good.status, StatusCode::SEE_OTHER, "{good:?}");
    assert!(parameter(&good.next().unwrap(), "code").is_some());
    let asked = scene.provider.asked.lock().unwrap().len();
    let replayed = copy.get(&back).await;
    assert_eq!(
        (replayed.status, replayed.next()),
        (StatusCode::BAD_REQUEST, None)
    );
    assert_eq!(
        scene.provider.asked.lock().unwrap().len(),
        asked,
        "the provider is not asked"
    );
}

/// EXT-229: an answer of another issuer, and ID tokens that are for others, of others, or not signed, bring no code.
#[tokio::test]
async fn foreign_answers_of_a_provider_bring_no_code() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let mut browser = Browser::default();
    for iss in ["iss=https%3A%2F%2Fevil.example", ""] {
        let page = scene.ask(&mut browser, &client).await;
        let back = scene.allow(&mut browser, &page).await;
        let mixed = format!("{}&{iss}", back.split_once("&iss=").unwrap().0);
        let page = browser.get(&mixed).await;
        assert_eq!(page.next(), None, "{iss}: {page:?}");
        assert!(
            scene.provider.asked.lock().unwrap().is_empty(),
            "no code goes to the provider"
        );
    }
    for (claims, header) in [
        (json!({"nonce": "another"}), id_header()),
        (json!({"nonce": null}), id_header()),
        (json!({"aud": "another"}), id_header()),
        (json!({"aud": ["kernel", "another"]}), id_header()),
        (json!({"azp": "another"}), id_header()),
        (json!({"iss": "https://evil.example"}), id_header()),
        (json!({"exp": seconds() - 600}), id_header()),
        (json!({"sub": "operator"}), id_header()),
        (json!({}), json!({"alg": "none"})),
        (json!({}), json!({"alg": "HS256", "kid": "one"})),
        (
            json!({}),
            json!({"alg": "EdDSA", "typ": "at+jwt", "kid": "one"}),
        ),
    ] {
        *scene.provider.changes.lock().unwrap() = (claims.clone(), header.clone());
        let url = scene.browse(&mut browser, &client).await;
        assert!(url.starts_with(REDIRECT), "{url}");
        assert_eq!(parameter(&url, "code"), None, "{claims} {header}");
        assert_eq!(parameter(&url, "error").as_deref(), Some("access_denied"));
        assert_eq!(parameter(&url, "iss"), Some(scene.issuer()));
    }
}

/// EXT-227: a stolen code is worth nothing without its verifier, to another client or a second time.
#[tokio::test]
async fn stolen_code_is_worth_nothing() {
    let scene = Scene::start("").await;
    let (client, thief) = (scene.client("Desk").await, scene.client("Thief").await);
    let code = scene.code(&client).await;
    let other = "x".repeat(50);
    let other_port = "http://127.0.0.1:9999/callback";
    for (client, changes, error) in [
        (&client, vec![("code_verifier", &*other)], "invalid_grant"),
        (&client, vec![("code_verifier", "")], "invalid_request"),
        (&client, vec![("redirect_uri", other_port)], "invalid_grant"),
        (&client, vec![("redirect_uri", "")], "invalid_request"),
        (&client, vec![("code", "another")], "invalid_grant"),
        (
            &client,
            vec![("resource", "https://other.example/mcp")],
            "invalid_target",
        ),
        (&client, vec![("client_secret", "x")], "invalid_client"),
        (
            &client,
            vec![("grant_type", "password")],
            "unsupported_grant_type",
        ),
        (&thief, vec![], "invalid_grant"),
        (&"unknown".to_owned(), vec![], "invalid_client"),
        (&"desk".to_owned(), vec![], "invalid_client"),
    ] {
        let (_, refused) = scene.redeem(client, &code, &changes).await;
        assert_eq!(refused["error"], error, "{changes:?}: {refused}");
    }
    let (status, tokens) = scene.redeem(&client, &code, &[]).await;
    assert_eq!(
        status,
        StatusCode::OK,
        "what failed burnt nothing: {tokens}"
    );
    let access = tokens["access_token"].as_str().unwrap();
    assert_eq!(scene.knock(access).await, StatusCode::OK);
    let (_, again) = scene.redeem(&client, &code, &[]).await;
    assert_eq!(again["error"], "invalid_grant");
    assert_eq!(
        scene.knock(access).await,
        StatusCode::UNAUTHORIZED,
        "a code in two hands is in doubt"
    );
    let (_, stolen) = scene.refresh(&thief, &scene.sign_in(&client).await).await;
    assert_eq!(stolen["error"], "invalid_grant");
}

/// EXT-226: tokens of the provider open nothing, and the kernel's own only what they are for.
#[tokio::test]
async fn token_opens_its_own_resource_alone() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let all = scene.sign_in(&client).await;
    for audience in ["kernel", &*scene.resource()] {
        let token = scene.provider.token(audience);
        assert_eq!(
            scene.knock(&token).await,
            StatusCode::UNAUTHORIZED,
            "{audience}"
        );
    }
    for token in [
        "the access token of the provider",
        all["refresh_token"].as_str().unwrap(),
        "mgp1.AAAA",
    ] {
        assert_eq!(
            scene.knock(token).await,
            StatusCode::UNAUTHORIZED,
            "{token}"
        );
    }
    let one = format!("{}/it", scene.resource());
    let mut browser = Browser::default();
    let page = browser
        .get(&scene.authorize_url(&client, &[("resource", &one)]))
        .await;
    let back = scene.allow(&mut browser, &page).await;
    let url = browser.get(&back).await.next().unwrap();
    let code = parameter(&url, "code").unwrap();
    let (_, of_one) = scene.redeem(&client, &code, &[("resource", &one)]).await;
    let (all, of_one) = (
        all["access_token"].as_str().unwrap(),
        of_one["access_token"].as_str().unwrap(),
    );
    for (token, at, wanted) in [
        (of_one, &one, StatusCode::OK),
        (of_one, &scene.resource(), StatusCode::UNAUTHORIZED),
        (all, &one, StatusCode::OK),
        // The other name of this machine is the same resource only where the client asked for it.
        (all, &scene.kernel.url().to_owned(), StatusCode::OK),
    ] {
        assert_eq!(knock(at, token).await, wanted, "{at}");
    }
    // Tokens of another kernel are not these.
    let other = Scene::start("").await;
    assert_eq!(other.knock(all).await, StatusCode::UNAUTHORIZED);
}

/// EXT-223, EXT-230: what unknown callers send is bounded and stores nothing; a client's document is not fetched from
/// addresses that the kernel alone can reach.
#[tokio::test]
async fn floods_and_oversize_bodies_lock_nobody_out() {
    let scene = Scene::start("").await;
    let client = scene.client("Desk").await;
    let large = json!({"client_name": "x".repeat(9000), "redirect_uris": [REDIRECT]});
    let (status, refused) = scene.register(&large).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{refused}");
    let (status, _) = scene.token(&[("x", &"x".repeat(40_000))]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    for (metadata, error) in [
        (json!([null, null, [REDIRECT]]), "invalid_client_metadata"),
        (
            json!({"redirect_uris": ["javascript:alert(1)"]}),
            "invalid_redirect_uri",
        ),
    ] {
        let (status, refused) = scene.register(&metadata).await;
        assert_eq!(
            (status, &refused["error"]),
            (StatusCode::BAD_REQUEST, &json!(error))
        );
    }
    for url in [
        "https://127.0.0.1/client.json",
        "https://169.254.169.254/latest",
        "https://localhost:1/client.json",
        "http://a.example/c",
    ] {
        let page = Browser::default().get(&scene.authorize_url(url, &[])).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{url}");
    }
    let before = std::fs::read_dir(scene.kernel.folder().join("data"))
        .unwrap()
        .count();
    let mut limited = 0;
    for n in 0..260 {
        let metadata = json!({"client_name": format!("flood {n}"), "redirect_uris": [REDIRECT]});
        let url = format!(
            "{}/oauth/register",
            scene.kernel.url().trim_end_matches("/mcp")
        );
        let answer = HttpClient::new(&url)
            .send(Method::POST, metadata.to_string())
            .await
            .unwrap();
        limited += usize::from(answer.status == StatusCode::TOO_MANY_REQUESTS);
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            assert!(answer.headers.contains_key("retry-after"));
        }
    }
    assert!(limited > 0, "a flood is slowed down");
    let after = std::fs::read_dir(scene.kernel.folder().join("data"))
        .unwrap()
        .count();
    assert_eq!(before, after);
    // Who registered before signs in as the budget fills again: each step is tried until it is let through.
    let mut browser = Browser::default();
    let mut page = None;
    wait_until("the page of a sign-in", DEADLINE, async || {
        let answer = browser.get(&scene.authorize_url(&client, &[])).await;
        page = (answer.status == StatusCode::OK).then_some(answer);
        page.is_some()
    })
    .await;
    let page = page.unwrap();
    wait_until("the answer to the page", DEADLINE, async || {
        browser.answer(&page, "allow").await.next().is_some()
    })
    .await;
}
