//! One catalog, read by clients of both eras.

use mgp_protocol::mcp::request_headers::ParamHeader;

use super::*;
use crate::tools::catalog::freshness::{CacheScope, Freshness};

const PLAIN: &str = r#"{"name":"plain","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"n":1.0e2}"#;
const LIST: &str = r#"{ "name":"list", "inputSchema":{"type":"object"}, "n":1.0e2, "outputSchema":{"type":"array","items":{"type":"integer"}}}"#;

fn text(catalog: &Catalog, view: &CatalogView, era: ProtocolFamily) -> String {
    let page = catalog.page(view, ListKind::Tools, None, era).unwrap();
    String::from_utf8(page.to_vec()).unwrap()
}

fn offering(server: &str, definitions: &[&str]) -> Arc<ServerOffer> {
    Arc::new(ServerOffer::new(id(server)).with_list(ListKind::Tools, definitions))
}

/// SEP-2106: a schema that legacy versions do not know is no part of the definition there, but of
/// the checks all the same.
#[test]
fn a_legacy_client_sees_no_output_schema_it_cannot_read() {
    let catalog = empty().with_offers(&[offering("a", &[PLAIN, LIST])]);
    let view = one("a");
    let modern = text(&catalog, &view, ProtocolFamily::Stateless);
    assert_eq!(modern, format!("{{\"tools\":[{PLAIN},{LIST}]}}"));
    let legacy = text(&catalog, &view, ProtocolFamily::Legacy);
    let cut = r#"{"name":"list","inputSchema":{"type":"object"},"n":1.0e2}"#;
    assert_eq!(legacy, format!("{{\"tools\":[{PLAIN},{cut}]}}"));
    let legacy = text(&catalog, &CatalogView::All, ProtocolFamily::Legacy);
    assert!(
        legacy.contains(r#"{"name":"a__list","inputSchema":{"type":"object"},"n":1.0e2}"#),
        "{legacy}"
    );
    assert!(text(&catalog, &CatalogView::All, ProtocolFamily::Stateless).contains("\"array\""));
    let tool = catalog.tool(&view, "list").unwrap();
    let output = tool.output.as_ref().unwrap().compiled().unwrap();
    assert!(output.check("[1,2]").is_ok() && output.check("[\"x\"]").is_err());
    for schema in [
        "true",
        r#"{"type":["object"]}"#,
        r#"{"anyOf":[{"type":"object"}]}"#,
    ] {
        let tool =
            format!(r#"{{"name":"x","inputSchema":{{"type":"object"}},"outputSchema":{schema}}}"#);
        let catalog = empty().with_offers(&[offering("a", &[&tool])]);
        assert_eq!(
            text(&catalog, &view, ProtocolFamily::Legacy),
            r#"{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}"#
        );
    }
}

/// SEP-2243: the route knows which arguments headers repeat; a tool that breaks the rules costs the
/// others nothing.
#[test]
fn a_tool_has_the_headers_of_its_arguments() {
    let tool = |name: &str, properties: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object","properties":{properties}}}}}"#
        )
    };
    let region = r#"{"type":"string","x-mcp-header":"Region"}"#;
    let good = tool(
        "good",
        &format!(r#"{{"where":{region},"b":{{"type":"string"}}}}"#),
    );
    let twice = tool("twice", &format!(r#"{{"a":{region},"b":{region}}}"#));
    let space = tool("space", r#"{"a":{"type":"string","x-mcp-header":"a b"}}"#);
    let offer = offering("a", &[&space, &good, &twice, PLAIN]);
    assert_eq!(offer.counts().tools, 2);
    let (rejected, _) = offer.rejected();
    assert_eq!(rejected.len(), 2);
    for (rejected, name) in rejected.iter().zip(["tool space: ", "tool twice: "]) {
        let told = rejected.to_string();
        assert!(
            told.starts_with(name) && told.contains("x-mcp-header"),
            "{told}"
        );
    }
    let catalog = empty().with_offers(&[offer]);
    let headers = |name: &str| {
        let tool = catalog.tool(&CatalogView::All, name).unwrap();
        let headers = tool.param_headers.iter();
        let header = |h: &ParamHeader| (h.header.to_string(), h.path.concat());
        headers.map(header).collect::<Vec<_>>()
    };
    assert_eq!(
        headers("good"),
        [("Mcp-Param-Region".into(), "where".into())]
    );
    assert_eq!(headers("plain"), []);
}

/// Two forms cost memory only where there is a difference, and only while there is one.
#[test]
fn pages_are_shared_where_nothing_differs() {
    let shared = |catalog: &Catalog, view: &CatalogView, kind| {
        let page = |era| catalog.page(view, kind, None, era).unwrap();
        page(ProtocolFamily::Legacy).as_ptr() == page(ProtocolFamily::Stateless).as_ptr()
    };
    let b = offering("b", &[PLAIN]);
    let both = empty().with_offers(&[offering("a", &[LIST]), Arc::clone(&b)]);
    assert!(!shared(&both, &one("a"), ListKind::Tools));
    assert!(!shared(&both, &CatalogView::All, ListKind::Tools));
    assert!(shared(&both, &one("b"), ListKind::Tools));
    assert!(shared(&both, &one("a"), ListKind::Prompts));
    let next = both.with_offers(&[offering("a", &[LIST]), b]);
    for era in [ProtocolFamily::Legacy, ProtocolFamily::Stateless] {
        let page = |catalog: &Catalog| {
            catalog
                .page(&CatalogView::All, ListKind::Tools, None, era)
                .unwrap()
        };
        assert_eq!(page(&both).as_ptr(), page(&next).as_ptr(), "{era:?}");
    }
    assert!(shared(
        &both.with_offers(&[]),
        &CatalogView::All,
        ListKind::Tools
    ));
}

/// MCP-029: a cursor belongs to the form it was cut from, and goes on when the forms become one or
/// part.
#[test]
fn cursors_are_valid_for_one_protocol_family() {
    let first = Catalog::empty(paging(1)).with_offers(&[offering("a", &[PLAIN, LIST])]);
    let view = one("a");
    let cursor = |catalog: &Catalog, era| {
        let page = catalog.page(&view, ListKind::Tools, None, era).unwrap();
        read(&page, ListKind::Tools).1.unwrap()
    };
    let goes_on = |catalog: &Catalog, cursor: &str, era| {
        let page = catalog.page(&view, ListKind::Tools, Some(cursor), era);
        page.map(|page| read(&page, ListKind::Tools).0)
    };
    let eras = [
        (ProtocolFamily::Legacy, ProtocolFamily::Stateless),
        (ProtocolFamily::Stateless, ProtocolFamily::Legacy),
    ];
    let plain = r#"{"name":"list","inputSchema":{"type":"object"},"n":1.0e2}"#;
    let plain = first.with_offers(&[offering("a", &[PLAIN, plain])]);
    for (era, other) in eras {
        let own = cursor(&first, era);
        assert_eq!(goes_on(&first, &own, era), Ok(vec!["list".into()]));
        assert_eq!(goes_on(&first, &own, other), Err(BadCursor));
        assert_eq!(goes_on(&plain, &own, era), Ok(vec!["list".into()]));
        assert_eq!(goes_on(&plain, &own, other), Err(BadCursor));
        let common = cursor(&plain, era);
        let parted = plain.with_offers(&[offering("a", &[PLAIN, LIST])]);
        assert_eq!(goes_on(&parted, &common, era), Ok(vec!["list".into()]));
        let own = cursor(&parted, era);
        assert_eq!(goes_on(&parted, &own, other), Err(BadCursor));
    }
}

/// MCP-042: whatever one of the eras sees change is told.
#[test]
fn a_change_in_either_form_is_a_change() {
    let a = |definition: &str| empty().with_offers(&[offering("a", &[definition])]);
    let told = [
        (CatalogView::All, ListKind::Tools),
        (one("a"), ListKind::Tools),
    ];
    let other = LIST.replace("integer", "string");
    assert_eq!(changed_lists(&a(LIST), &a(&other)), told);
    assert_eq!(changed_lists(&a(LIST), &a(LIST)), []);
    let plain = LIST.replace("array", "object");
    assert_eq!(changed_lists(&a(LIST), &a(&plain)), told);
    assert_eq!(changed_lists(&a(&plain), &a(LIST)), told);
}

/// SEP-2549: the merged list is as fresh as its least fresh part; what no server has is no part.
#[test]
fn a_merged_list_is_as_fresh_as_its_parts() {
    let fresh = |ttl_ms, scope| Freshness { ttl_ms, scope };
    let (long, short) = (
        fresh(9_000, CacheScope::Public),
        fresh(4_000, CacheScope::Public),
    );
    let private = fresh(9_000, CacheScope::Private);
    let offer = |server: &str, freshness| {
        let offer = ServerOffer::new(id(server)).with_list(ListKind::Tools, &[PLAIN]);
        Arc::new(offer.with_freshness(ListKind::Tools, freshness))
    };
    let of = |catalog: &Catalog, view: &CatalogView| catalog.freshness(view, ListKind::Tools);
    let all = |offers: &[Arc<ServerOffer>]| of(&empty().with_offers(offers), &CatalogView::All);
    let (a, b) = (offer("a", long), offer("b", short));
    let prompts = ServerOffer::new(id("c")).with_list(ListKind::Prompts, &[r#"{"name":"p"}"#]);
    let two = empty().with_offers(&[Arc::clone(&a), b, Arc::new(prompts)]);
    assert_eq!(of(&two, &CatalogView::All), short);
    assert_eq!(of(&two, &one("a")), long);
    assert_eq!(of(&two, &one("c")), Freshness::default());
    assert_eq!(
        two.freshness(&CatalogView::All, ListKind::Prompts),
        Freshness::default()
    );
    assert_eq!(
        two.freshness(&CatalogView::All, ListKind::Resources),
        Freshness::default()
    );
    assert_eq!(all(&[Arc::clone(&a), offer("b", private)]), private);
    let legacy = offering("b", &[LIST]);
    assert_eq!(all(&[Arc::clone(&a), legacy]), Freshness::default());
    // An empty list can be fresh too, and a list that came anew has to be told so.
    let none: [&str; 0] = [];
    let none = ServerOffer::new(id("b")).with_list(ListKind::Tools, &none);
    let none = none.with_freshness(ListKind::Tools, short);
    assert_eq!(all(&[Arc::clone(&a), Arc::new(none.clone())]), short);
    let taken = ServerOffer::new(id("b")).with_list_from(ListKind::Tools, &none);
    assert_eq!(all(&[Arc::clone(&a), Arc::new(taken)]), short);
    let anew = (*a).clone().with_list(ListKind::Tools, &[PLAIN]);
    assert_eq!(all(&[Arc::new(anew)]), Freshness::default());
}
