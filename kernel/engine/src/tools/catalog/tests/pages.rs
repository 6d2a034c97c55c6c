//! Lists in pages.

use super::*;

/// MCP-028: walking the cursors gives every entry once, servers by id, then in their own order.
#[test]
fn pages_lead_to_the_end() {
    let catalog = Catalog::empty(paging(3));
    let catalog = catalog.with_offers(&[
        tools("b", &["z", "y"]),
        tools("a", &["q", "w", "e", "r", "t"]),
    ]);
    let want = ["a__q", "a__w", "a__e", "a__r", "a__t", "b__z", "b__y"];
    assert_eq!(walk(&catalog, &CatalogView::All, ListKind::Tools), want);
    assert_eq!(
        walk(&catalog, &one("a"), ListKind::Tools),
        ["q", "w", "e", "r", "t"]
    );
    for kind in ListKind::ALL.into_iter().skip(1) {
        let none = format!("{{\"{}\":[]}}", kind.result_member());
        assert_eq!(first_page(&catalog, &CatalogView::All, kind), none);
        assert_eq!(first_page(&catalog, &one("gone"), kind), none);
    }
}

/// MCP-029: a cursor belongs to one list of one view.
#[test]
fn foreign_cursors_are_rejected() {
    let catalog = Catalog::empty(paging(1));
    let catalog = catalog.with_offers(&[tools("a", &["x", "y"]), tools("b", &["x", "y"])]);
    let page = catalog
        .page(&one("a"), ListKind::Tools, None, ProtocolFamily::Stateless)
        .unwrap();
    let cursor = read(&page, ListKind::Tools).1.unwrap();
    assert!(
        catalog
            .page(
                &one("a"),
                ListKind::Tools,
                Some(&cursor),
                ProtocolFamily::Stateless
            )
            .is_ok()
    );
    for (view, kind) in [
        (one("b"), ListKind::Tools),
        (CatalogView::All, ListKind::Tools),
        (one("a"), ListKind::Prompts),
        (one("gone"), ListKind::Tools),
    ] {
        assert_eq!(
            catalog.page(&view, kind, Some(&cursor), ProtocolFamily::Stateless),
            Err(BadCursor)
        );
    }
    assert_eq!(
        catalog.page(
            &one("a"),
            ListKind::Tools,
            Some(""),
            ProtocolFamily::Stateless
        ),
        Err(BadCursor)
    );
}

#[test]
fn a_cursor_survives_changes_around_its_position() {
    let catalog = Catalog::empty(paging(2)).with_offers(&[tools("a", &["p", "q", "r", "s"])]);
    let page = catalog
        .page(
            &CatalogView::All,
            ListKind::Tools,
            None,
            ProtocolFamily::Stateless,
        )
        .unwrap();
    let cursor = read(&page, ListKind::Tools).1.unwrap();
    let goes_on = |catalog: &Catalog| {
        let page = catalog.page(
            &CatalogView::All,
            ListKind::Tools,
            Some(&cursor),
            ProtocolFamily::Stateless,
        );
        page.map(|page| read(&page, ListKind::Tools))
    };
    let (names, next) = goes_on(&catalog).unwrap();
    assert_eq!((names, next), (vec!["a__r".into(), "a__s".into()], None));
    let grown = catalog.with_offers(&[tools("a", &["new", "p", "q", "r", "s", "t"])]);
    let (names, next) = goes_on(&grown).unwrap();
    assert_eq!(names, ["a__r", "a__s"]);
    let page = grown
        .page(
            &CatalogView::All,
            ListKind::Tools,
            next.as_deref(),
            ProtocolFamily::Stateless,
        )
        .unwrap();
    assert_eq!(read(&page, ListKind::Tools), (vec!["a__t".into()], None));
    let shrunk = grown.with_offers(&[tools("a", &["q"])]);
    assert_eq!(goes_on(&shrunk), Ok((vec![], None)));
    let gone = shrunk.with_offers(&[tools("a", &["p", "r"])]);
    assert_eq!(goes_on(&gone), Err(BadCursor));
}

#[test]
fn a_page_of_large_definitions_has_fewer_of_them() {
    let filling = "x".repeat(1_000_000);
    let large =
        |n: usize| tool(&format!("t{n}")).replacen('{', &format!("{{\"x\":\"{filling}\","), 1);
    let definitions: Vec<String> = (0..12).map(large).collect();
    let offer = Arc::new(ServerOffer::new(id("a")).with_list(ListKind::Tools, &definitions));
    let catalog = empty().with_offers(&[offer]);
    let page = catalog
        .page(&one("a"), ListKind::Tools, None, ProtocolFamily::Stateless)
        .unwrap();
    assert!(page.len() < 6 << 20, "{}", page.len());
    assert_eq!(walk(&catalog, &one("a"), ListKind::Tools).len(), 12);
}
