use super::*;

fn rules(whitelist: &[&str], blacklist: &[&str]) -> ScopeRules {
    let read = |all: &[&str]| {
        let all = all.iter().map(|pattern| ScopePattern::parse(pattern));
        all.collect::<Result<_, _>>().unwrap()
    };
    ScopeRules {
        whitelist: read(whitelist),
        blacklist: read(blacklist),
        ..ScopeRules::default()
    }
}

/// MCPL-053, MCPL-054, MCPL-055: the blacklist, then the whitelist, then a person.
#[test]
fn the_blacklist_comes_before_the_whitelist() {
    let rules = rules(&["/project/**"], &["**/.env"]);
    let denied = ScopeVerdict::Denied("**/.env".into());
    assert_eq!(rules.evaluate("/project/.env"), denied);
    let approved = ScopeVerdict::Approved("/project/**".into());
    assert_eq!(rules.evaluate("/project/a"), approved);
    assert_eq!(rules.evaluate("/etc/hosts"), ScopeVerdict::Undecided(None));
}

/// MCPL-054, MCPL-059: labels that only resemble whitelisted ones do not pass.
#[test]
fn labels_that_resemble_allowed_ones_are_not_allowed() {
    let rules = rules(&["/project/**", "#dev-*", "**"], &[]);
    for label in [
        "/project/../etc/passwd",
        "/project/./../etc",
        "/project/a/..",
        "/project//a",
        "/project/a/",
        "//project/a",
        "/project/.",
        "/project/a/./b",
        "/project/..\\etc",
        "/project\\..\\etc",
        "/project/%2e%2e/etc",
        "/project/%2E%2e%2fetc",
        "/project/%252e%252e/etc",
        "/project/a%00b",
        "/project/a\0",
        "/project/a\0.txt",
        "/project/a\n/etc",
        "/project/a\u{202e}txt",
        "/project/a\u{200b}",
        "/project/\u{feff}a",
        "/project/a ",
        " /project/a",
        "/project /a",
        "/project/a\t",
        "/project/a.",
        "/project/.. /etc",
        "/project/\u{2024}\u{2024}/etc",
        "/project/\u{ff0e}\u{ff0e}/etc",
        "/project\u{ff0f}..\u{ff0f}etc",
        "/project/a\u{a0}",
        "/pr\u{43e}ject/a",
        "#d\u{435}v-ops",
        "/project/e\u{301}",
        "/project/\u{212a}elvin",
        "",
    ] {
        let verdict = rules.evaluate(label);
        assert!(
            matches!(verdict, ScopeVerdict::Undecided(Some(_))),
            "{label:?}: {verdict:?}"
        );
    }
    let long = format!("/project/{}", "a".repeat(mgp_screening::scopes::LABEL_MAX));
    assert!(matches!(
        rules.evaluate(&long),
        ScopeVerdict::Undecided(Some(_))
    ));
    for label in [
        "/project/é",
        "/project/日本",
        "/project/a b/c.d",
        "/project/.env",
        "#dev-ops",
        "/project/100%",
        ".",
    ] {
        let verdict = rules.evaluate(label);
        assert_eq!(
            matches!(verdict, ScopeVerdict::Approved(_)),
            label != ".",
            "{label}: {verdict:?}"
        );
    }
}

/// MCPL-053: each reading of a label is checked against the blacklist.
#[test]
fn a_label_with_a_blacklisted_reading_is_denied() {
    let rules = rules(&["**"], &["**/.env", "/etc/**", "#admin-*"]);
    for label in [
        "/a/.env",
        "/a/.ENV",
        "/a/.Env",
        "/a/.env/",
        "/a/.env ",
        "/a/.env.",
        "/a//.env",
        "/a/./.env",
        "/a/b/../.env",
        "/a\\.env",
        "/a/%2eenv",
        "/a/%2Eenv",
        "/a/%252eenv",
        "/a/%25252eenv",
        "/a/.env%00.txt",
        "/a/.env\0.txt",
        "/a/.env%20",
        "/a/.e\u{200b}nv",
        "/a/\u{ff0e}env",
        "/a/.\u{ff45}nv",
        "/a/.env\u{feff}",
        "/ETC/hosts",
        "/project/../etc/hosts",
        "//etc/hosts",
        "/./etc/hosts",
        "#ADMIN-x",
        "#adm\u{131}n-x",
        "#ad\u{feff}min-x",
    ] {
        let verdict = rules.evaluate(label);
        assert!(
            matches!(verdict, ScopeVerdict::Denied(_)),
            "{label:?}: {verdict:?}"
        );
    }
}

/// MCPL-052: the operator adds and replaces members.
#[test]
fn a_payload_is_enriched_by_rule() {
    let general = ScopePattern::parse("#general").unwrap();
    let any = ScopePattern::parse("#*").unwrap();
    let members = |all: &[(&str, &str)]| {
        let all = all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        all.collect()
    };
    let rules = ScopeRules {
        enrich: vec![
            (any, members(&[("guild", r#""acme""#)])),
            (general, members(&[("channel_id", r#""C1""#)])),
        ],
        ..ScopeRules::default()
    };
    let enriched = |label, payload| rules.enrich(label, payload);
    assert_eq!(
        enriched("#general", None).unwrap(),
        r#"{"channel_id":"C1","guild":"acme"}"#
    );
    assert_eq!(
        enriched("#general", Some(r#"{"n":1e400,"channel_id":"forged"}"#)).unwrap(),
        r#"{"channel_id":"C1","guild":"acme","n":1e400}"#
    );
    assert_eq!(enriched("/a", Some(r#"{"n":1}"#)).unwrap(), r#"{"n":1}"#);
    assert_eq!(enriched("/a", None), None);
}

/// MCPL-157: an agent's patterns only close.
#[test]
fn an_agent_only_narrows() {
    let patterns = |whitelist: &[&str], blacklist: &[&str]| ScopePatterns {
        whitelist: whitelist
            .iter()
            .map(|pattern| (*pattern).to_owned())
            .collect(),
        blacklist: blacklist
            .iter()
            .map(|pattern| (*pattern).to_owned())
            .collect(),
    };
    assert!(is_allowed_by("/a", &patterns(&[], &[])));
    assert!(!is_allowed_by("/a", &patterns(&["/b/**"], &[])));
    assert!(is_allowed_by("/b/a", &patterns(&["/b/**"], &[])));
    assert!(!is_allowed_by(
        "/b/.env",
        &patterns(&["/b/**"], &["**/.env"])
    ));
    assert!(!is_allowed_by("/a", &patterns(&[], &["/x/../y"])));
    // More than can be read close everything, or open nothing.
    let many: Vec<String> = (0..257).map(|n| format!("/n{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(is_allowed_by("/a", &patterns(&[], &many[..256])));
    assert!(!is_allowed_by("/n255", &patterns(&[], &many[..256])));
    assert!(!is_allowed_by("/a", &patterns(&[], &many)));
    assert!(is_allowed_by("/n255", &patterns(&many[..256], &[])));
    assert!(!is_allowed_by("/n0", &patterns(&many, &[])));
}
