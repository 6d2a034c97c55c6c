//! Groups of people who sign in at a provider behind the broker.

use super::*;

/// EXT-252: the provider's claims give groups by the operator's mapping, over refreshes and restarts, until the sign-in or
/// the mapping ends.
#[tokio::test]
async fn claims_of_a_sign_in_give_mapped_groups() {
    let mapping = "groups = { Eng = \"readers\", Ops = \"ops\" }\n";
    let more = format!("{mapping}[access]\ndefault_policy = \"opt-in\"");
    let scene = Scene::start(&more).await;
    let grant = ["grants", "add", "group.readers", "it:count"];
    scene.kernel.mgp_json(&grant).await;
    let client = scene.client("Desk").await;
    let sign_in = async |scene: &Scene, subject: &str, groups: Value| {
        *scene.provider.changes.lock().unwrap() =
            (json!({"sub": subject, "groups": groups}), id_header());
        scene.sign_in(&client).await
    };
    let eve = sign_in(&scene, "eve", json!(["group.readers", "readers"])).await;
    assert!(!may_call(&scene, &eve).await);
    let ada = sign_in(&scene, "ada", json!(["Eng", "x"])).await;
    assert!(may_call(&scene, &ada).await);
    let (status, ada) = scene.refresh(&client, &ada).await;
    assert_eq!(status, StatusCode::OK, "{ada}");
    assert!(may_call(&scene, &ada).await);

    let scene = scene.restart(|text| text).await;
    assert!(may_call(&scene, &ada).await);
    assert!(!may_call(&scene, &eve).await);
    // Without a mapping nothing is a group.
    let scene = scene.restart(|text| text.replace(mapping, "")).await;
    assert!(!may_call(&scene, &ada).await);
    // What another mapping would have read is not known.
    let other = "[oauth]\ngroups = { Eng = \"readers\", Temps = \"temps\" }\n";
    let scene = scene.restart(|text| text.replace("[oauth]\n", other)).await;
    let token = ada["access_token"].as_str().unwrap();
    assert_eq!(scene.knock(token).await, StatusCode::UNAUTHORIZED);
    let (status, refused) = scene.refresh(&client, &ada).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    let ada = sign_in(&scene, "ada", json!("Eng")).await;
    assert!(may_call(&scene, &ada).await);
}

async fn may_call(scene: &Scene, tokens: &Value) -> bool {
    let mut client = HttpClient::new(&scene.resource());
    let token = tokens["access_token"].as_str().unwrap();
    client.set(AUTHORIZATION, &format!("Bearer {token}"));
    let call = json!({"name": "it__count", "arguments": {}});
    let answer = super::super::super::ask(&client, "{}", "tools/call", call).await;
    answer["result"].is_object() && answer["result"]["isError"] != true
}
