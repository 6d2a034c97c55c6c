use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

struct Scene {
    root: tempfile::TempDir,
    store: SecretStore,
}

fn scene() -> Scene {
    let root = tempfile::tempdir().unwrap();
    let store = SecretStore::new(&root.path().join("config"), &root.path().join("data/key"));
    Scene { root, store }
}

impl Scene {
    fn set(&self, space: Namespace, name: &str, value: &str) {
        self.store.set(space, name, &value.into()).unwrap();
    }

    fn got(&self, space: Namespace, name: &str) -> Option<String> {
        let got = self.store.get(space, name).unwrap();
        got.map(|value| value.expose_secret().to_owned())
    }

    fn refused(&self) -> String {
        self.store
            .get(Namespace::Named, "a")
            .unwrap_err()
            .to_string()
    }
}

#[test]
fn secret_is_stored_listed_replaced_and_removed() {
    let scene = scene();
    assert_eq!(scene.got(Namespace::Named, "a"), None);
    assert_eq!(scene.store.list(Namespace::Named).unwrap(), []);
    assert!(!scene.store.remove(Namespace::Named, "a").unwrap());
    assert_eq!(
        fs::read_dir(scene.root.path()).unwrap().count(),
        0,
        "nothing is made for that"
    );
    scene.set(Namespace::Named, "b", "two");
    scene.set(Namespace::Named, "a", "one");
    scene.set(Namespace::Named, "a", "s3cret é\n ");
    let listed = scene.store.list(Namespace::Named).unwrap();
    let names: Vec<_> = listed.iter().map(|kept| kept.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(
        listed
            .iter()
            .all(|kept| kept.location == SecretLocation::File && kept.set_ms > 0)
    );
    assert_eq!(
        scene.got(Namespace::Named, "a").as_deref(),
        Some("s3cret é\n ")
    );
    assert_eq!(scene.got(Namespace::Named, "A"), None);
    assert!(scene.store.remove(Namespace::Named, "a").unwrap());
    assert!(!scene.store.remove(Namespace::Named, "a").unwrap());
    assert_eq!(scene.got(Namespace::Named, "a"), None);
    assert_eq!(scene.got(Namespace::Named, "b").as_deref(), Some("two"));
}

#[test]
fn namespaces_are_separate() {
    let scene = scene();
    scene.set(Namespace::Oauth, "a", "token");
    assert_eq!(scene.got(Namespace::Named, "a"), None);
    scene.set(Namespace::Named, "a", "mine");
    assert!(scene.store.remove(Namespace::Named, "a").unwrap());
    assert_eq!(scene.got(Namespace::Oauth, "a").as_deref(), Some("token"));
    // Nor by moving its file to the other's path.
    let [named, oauth] = Namespace::ALL.map(|space| scene.store.file(space));
    fs::copy(oauth, named).unwrap();
    assert!(scene.refused().contains("does not open"));
}

#[test]
fn files_are_private_and_reveal_nothing() {
    let scene = scene();
    scene.set(Namespace::Named, "github", "s3cret-value");
    let files = [
        scene.store.file(Namespace::Named),
        scene.store.key().to_owned(),
    ];
    for file in files {
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        let folder = fs::metadata(file.parent().unwrap()).unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
        let text = fs::read(&file).unwrap();
        for told in ["s3cret-value", "github"] {
            assert!(!text.windows(told.len()).any(|w| w == told.as_bytes()));
        }
    }
    fs::set_permissions(scene.store.key(), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(scene.refused().contains("chmod 600"));
}

/// A missing key is never replaced while files sealed with it exist.
#[test]
fn missing_key_is_reported_and_files_kept() {
    let scene = scene();
    scene.set(Namespace::Oauth, "a", "token");
    let sealed = fs::read(scene.store.file(Namespace::Oauth)).unwrap();
    let key = fs::read(scene.store.key()).unwrap();
    fs::remove_file(scene.store.key()).unwrap();
    for space in Namespace::ALL {
        let refused = scene
            .store
            .set(space, "b", &"x".into())
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("is missing") && refused.contains("put a copy back"),
            "{refused}"
        );
    }
    assert!(!scene.store.key().exists());
    assert_eq!(
        fs::read(scene.store.file(Namespace::Oauth)).unwrap(),
        sealed
    );
    fs::write(scene.store.key(), key).unwrap();
    fs::set_permissions(scene.store.key(), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(scene.got(Namespace::Oauth, "a").as_deref(), Some("token"));
    fs::write(scene.store.key(), "0".repeat(64)).unwrap();
    let refused = scene
        .store
        .set(Namespace::Oauth, "b", &"x".into())
        .unwrap_err();
    assert!(refused.to_string().contains("does not open"), "{refused}");
    fs::write(scene.store.key(), "zz").unwrap();
    assert!(scene.store.set(Namespace::Oauth, "b", &"x".into()).is_err());
    assert_eq!(
        fs::read(scene.store.file(Namespace::Oauth)).unwrap(),
        sealed
    );
}

/// The command line and a kernel change the file concurrently, and neither loses the other's changes.
#[test]
fn concurrent_writers_lose_nothing() {
    let scene = scene();
    std::thread::scope(|threads| {
        for writer in 0..4 {
            let scene = &scene;
            threads.spawn(move || {
                for n in 0..5 {
                    scene.set(Namespace::Oauth, &format!("{writer}.{n}"), "x");
                }
            });
        }
    });
    assert_eq!(scene.store.list(Namespace::Oauth).unwrap().len(), 20);
}

#[test]
fn errors_and_debug_output_hide_values() {
    let scene = scene();
    let value = SecretString::from(format!("s3cret\0{}", "x".repeat(9)));
    let refused = scene.store.set(Namespace::Named, "a", &value).unwrap_err();
    assert!(!refused.to_string().contains("s3cret") && !format!("{refused:?}").contains("s3cret"));
    scene.set(Namespace::Named, "a", "s3cret");
    let shown = format!("{:?}{:?}", scene.store, scene.store.list(Namespace::Named));
    let got = format!("{:?}", scene.store.get(Namespace::Named, "a"));
    assert!(!shown.contains("s3cret") && !got.contains("s3cret"));
}
