use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000_000;

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn signer() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn jwk() -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": encoded(signer().public_key().as_ref())})
}

fn keys() -> IssuerKeys {
    IssuerKeys::parse(json!({"keys": [jwk()]}).to_string().as_bytes()).unwrap()
}

fn policy() -> BearerPolicy {
    BearerPolicy {
        issuer: "https://issuer.example".into(),
        algorithms: vec![Algorithm::EdDsa, Algorithm::Es256, Algorithm::Rs256],
        agent_claim: "sub".into(),
        scopes: vec!["mcp".into()],
        groups: Default::default(),
    }
}

fn good() -> Value {
    json!({
        "iss": "https://issuer.example", "aud": "https://door.example/mcp", "sub": "alice",
        "exp": NOW / 1000 + 60, "nbf": NOW / 1000, "scope": "openid mcp",
    })
}

fn token(header: &Value, claims: &Value) -> String {
    let signed = format!(
        "{}.{}",
        encoded(header.to_string().as_bytes()),
        encoded(claims.to_string().as_bytes())
    );
    let signature = signer().sign(signed.as_bytes());
    format!("{signed}.{}", encoded(signature.as_ref()))
}

fn header() -> Value {
    json!({"alg": "EdDSA", "kid": "one", "typ": "at+jwt"})
}

fn said(token: &str) -> Result<VerifiedToken, BadBearerToken> {
    let audiences = ["https://door.example/mcp".to_owned()];
    verify(token, &keys(), &policy(), &audiences, NOW)
}

#[test]
fn a_valid_token_names_its_agent_until_it_expires() {
    let found = said(&token(&header(), &good())).unwrap();
    assert_eq!(found.agent.as_str(), "agent.alice");
    assert_eq!(found.not_after_ms, NOW + 90_000);
}

/// RFC 8725: also if it is missing.
#[test]
fn each_claim_is_checked() {
    let with = |name: &str, value: Value| {
        let mut claims = good();
        claims[name] = value;
        said(&token(&header(), &claims)).unwrap_err()
    };
    assert_eq!(
        with("iss", json!("https://issuer.example/")),
        BadBearerToken::Issuer
    );
    assert_eq!(
        with("iss", json!(["https://issuer.example"])),
        BadBearerToken::Issuer
    );
    for other in [
        json!("https://other.example/mcp"),
        json!([]),
        json!(null),
        json!("https://door.example"),
    ] {
        assert_eq!(with("aud", other), BadBearerToken::Audience);
    }
    assert_eq!(
        with("exp", json!(NOW / 1000 - 31)),
        BadBearerToken::Expired(NOW - 31_000)
    );
    for odd in [json!(null), json!("2099"), json!(-1), json!({})] {
        assert_eq!(with("exp", odd), BadBearerToken::BadTimes);
    }
    assert_eq!(
        with("nbf", json!(NOW / 1000 + 31)),
        BadBearerToken::NotYetValid
    );
    assert_eq!(with("nbf", json!("soon")), BadBearerToken::BadTimes);
    for odd in [
        json!(null),
        json!(""),
        json!(7),
        json!("operator"),
        json!("local"),
    ] {
        assert_eq!(with("sub", odd), BadBearerToken::Subject);
    }
    for odd in [json!(null), json!("mcpx openid"), json!(["x"])] {
        assert_eq!(with("scope", odd), BadBearerToken::Scope);
    }
    let mut listed = good();
    listed["aud"] = json!(["https://x.example", "https://door.example/mcp/"]);
    listed["scope"] = json!(null);
    listed["scp"] = json!(["mcp"]);
    assert!(said(&token(&header(), &listed)).is_ok());
}

/// RFC 7519, section 4: parsers differ on its value.
#[test]
fn a_token_with_a_duplicate_claim_is_rejected() {
    let text = good().to_string();
    let with = |more: &str| {
        let claims = format!("{},{more}}}", text.strip_suffix('}').unwrap());
        let head = encoded(header().to_string().as_bytes());
        let signed = format!("{head}.{}", encoded(claims.as_bytes()));
        let signature = signer().sign(signed.as_bytes());
        said(&format!("{signed}.{}", encoded(signature.as_ref())))
    };
    assert!(with(r#""jti":"1""#).is_ok());
    for more in [
        r#""sub":"bob""#,
        r#""sub":"alice""#,
        r#""s\u0075b":"bob""#,
        r#""iss":"https://issuer.example""#,
        r#""exp":99999999999"#,
        r#""scope":"mcp""#,
        r#""aud":"https://door.example/mcp""#,
        r#""jti":"1","jti":"2""#,
    ] {
        assert_eq!(with(more), Err(BadBearerToken::DuplicateClaim), "{more}");
    }
    let twice = r#"{"alg":"EdDSA","kid":"one","alg":"EdDSA"}"#;
    let whole = token(&header(), &good());
    let (_, rest) = whole.split_once('.').unwrap();
    let twice = said(&format!("{}.{rest}", encoded(twice.as_bytes())));
    assert_eq!(twice, Err(BadBearerToken::Malformed));
}

/// `none`, a shared secret, another key's algorithm, an extension.
#[test]
fn the_header_cannot_choose_the_algorithm() {
    let with = |name: &str, value: Value| {
        let mut header = header();
        header[name] = value;
        said(&token(&header, &good())).unwrap_err()
    };
    for alg in ["none", "None", "HS256", "HS512", "eddsa", "RS384", ""] {
        assert_eq!(with("alg", json!(alg)), BadBearerToken::Algorithm, "{alg}");
    }
    assert_eq!(with("alg", json!("RS256")), BadBearerToken::Signature);
    assert_eq!(with("alg", json!("ES256")), BadBearerToken::Signature);
    assert_eq!(with("kid", json!("two")), BadBearerToken::UnknownKey);
    assert_eq!(with("crit", json!(["exp"])), BadBearerToken::Malformed);
    assert_eq!(with("typ", json!("logout+jwt")), BadBearerToken::Malformed);
    let whole = token(&header(), &good());
    let (signed, _) = whole.rsplit_once('.').unwrap();
    assert_eq!(said(&format!("{signed}.")), Err(BadBearerToken::Signature));
    assert_eq!(said(signed), Err(BadBearerToken::Malformed));
    assert_eq!(said(&format!("{whole}.x")), Err(BadBearerToken::Malformed));
}

/// At any character.
#[test]
fn a_changed_token_is_rejected() {
    let whole = token(&header(), &good());
    for at in 0..whole.len() {
        let mut bytes = whole.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(said(&changed).is_err(), "changed at {at}");
    }
}

#[test]
fn shared_secrets_are_not_accepted_as_keys() {
    let of = |jwk: Value| IssuerKeys::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
    let mut enc = jwk();
    enc["use"] = json!("enc");
    let mut other = jwk();
    other["alg"] = json!("HS256");
    let secret = json!({"kty": "oct", "kid": "one", "k": encoded(b"secret")});
    for none in [enc, other, secret, json!(7)] {
        assert!(of(none.clone()).is_empty(), "{none}");
    }
    assert!(IssuerKeys::parse(b"[]").is_err());
    let many: Vec<Value> = vec![jwk(); MAX_KEYS + 1];
    let many = IssuerKeys::parse(json!({"keys": many}).to_string().as_bytes()).unwrap();
    assert_eq!(many.len(), MAX_KEYS);
}

#[test]
fn an_elliptic_curve_key_verifies_its_signatures() {
    let random = SystemRandom::new();
    let how = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let made = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(how, made.as_ref(), &random).unwrap();
    let point = pair.public_key().as_ref();
    let jwk = json!({
        "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "ec", "use": "sig",
        "x": encoded(&point[1..33]), "y": encoded(&point[33..]),
    });
    let keys = IssuerKeys::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap();
    let signature = pair.sign(&random, b"text").unwrap();
    let verify = |kid, text: &[u8]| keys.verify(Algorithm::Es256, kid, text, signature.as_ref());
    assert_eq!(verify(Some("ec"), b"text"), Ok(()));
    assert_eq!(verify(None, b"text"), Ok(()));
    assert_eq!(verify(Some("ec"), b"other"), Err(BadBearerToken::Signature));
    assert_eq!(verify(Some("no"), b"text"), Err(BadBearerToken::UnknownKey));
}

/// EXT-213: a claim gives a group by the operator's mapping only, and a token whose groups cannot be read is refused: what
/// is denied to them would not count.
#[test]
fn claims_give_mapped_groups_only() {
    let group = |name: &str| GroupName::parse(name).unwrap();
    let mapping = GroupMapping {
        claim: "groups".into(),
        map: [
            ("Engineering".to_owned(), group("readers")),
            ("Eng2".to_owned(), group("readers")),
            ("Ops".to_owned(), group("ops")),
        ]
        .into(),
        scopes: [(group("ops"), "ops.all".to_owned())].into(),
    };
    let policy = BearerPolicy {
        groups: mapping,
        ..policy()
    };
    let read = |more: &[(&str, Value)]| {
        let mut claims = good();
        for (name, value) in more {
            claims[*name] = value.clone();
        }
        let audiences = ["https://door.example/mcp".to_owned()];
        let verified = verify(
            &token(&header(), &claims),
            &keys(),
            &policy,
            &audiences,
            NOW,
        )?;
        let groups = verified.groups.iter();
        Ok(groups
            .map(|(group, effect)| (group.to_string(), *effect))
            .collect::<Vec<_>>())
    };
    let readers = ("group.readers".to_owned(), EntryEffect::Whole);
    let ops = |effect| ("group.ops".to_owned(), effect);
    for (claimed, expected) in [
        (json!(null), vec![]),
        (json!([]), vec![]),
        (json!("Engineering"), vec![readers.clone()]),
        (
            json!(["Engineering", "Eng2", "Engineering"]),
            vec![readers.clone()],
        ),
        (
            json!([
                "engineering",
                "readers",
                "group.readers",
                " Engineering",
                "Engineering,Ops"
            ]),
            vec![],
        ),
        (json!(["Ops"]), vec![ops(EntryEffect::Closing)]),
    ] {
        assert_eq!(
            read(&[("groups", claimed.clone())]),
            Ok(expected),
            "{claimed}"
        );
    }
    let scope = ("scope", json!("mcp ops.all readers Engineering"));
    assert_eq!(
        read(&[("groups", json!(["Ops"])), scope.clone()]),
        Ok(vec![ops(EntryEffect::Whole)])
    );
    assert_eq!(read(&[scope]), Ok(vec![]), "a scope gives nothing");
    for odd in [
        json!(7),
        json!(true),
        json!({"Engineering": true}),
        json!([["Engineering"]]),
        json!(["Engineering", {"a": 1}]),
        json!(["Engineering", null]),
    ] {
        assert_eq!(
            read(&[("groups", odd.clone())]),
            Err(BadBearerToken::Groups),
            "{odd}"
        );
    }
    let elsewhere = ("_claim_names", json!({"groups": "src1"}));
    assert_eq!(
        read(&[elsewhere]),
        Err(BadBearerToken::Groups),
        "Entra, above 200 groups"
    );
    // As many as a token has place for.
    let many: Vec<String> = (0..1_500).map(|n| format!("g{n}")).collect();
    assert_eq!(read(&[("groups", json!(many))]), Ok(vec![]));
    let longer: Vec<String> = (0..10_000).map(|n| format!("g{n}")).collect();
    assert_eq!(
        read(&[("groups", json!(longer))]),
        Err(BadBearerToken::Malformed)
    );
}
