//! Pages, and what they send a reader to.

use std::fs;

use crate::workspace::root;

/// Every page a reader is sent to exists.
#[test]
fn links_in_the_docs_resolve() {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    for folder in ["docs", "docs/decisions", "docs/requirements"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let paths = entries.map(|e| e.unwrap().path());
        pages.extend(paths.filter(|p| p.extension().is_some_and(|e| e == "md")));
    }
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if !link.contains("://") && !link.starts_with('#') {
                let target = page.parent().unwrap().join(link.split('#').next().unwrap());
                assert!(target.exists(), "{}: {link}", page.display());
            }
        }
    }
}
