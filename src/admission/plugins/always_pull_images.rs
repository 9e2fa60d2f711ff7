//! AlwaysPullImages: every image is pulled with the pod's own credentials, so that a node's image cache
//! grants no access. As upstream's `plugin/pkg/admission/alwayspullimages`.

use super::pods::{ALL_CONTAINERS, containers, elements_mut};
use crate::admission::{Admission, Attributes, Operation, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::HashSet;

/// Sets the pull policy of all containers and image volumes to `Always`.
pub(crate) struct AlwaysPullImages;

fn images(pod: &Value) -> Vec<&str> {
    let volumes = pod.at(&["spec", "volumes"]).items().iter();
    let references = volumes.map(|v| v.str_at(&["image", "reference"]));
    let all = containers(pod).map(|c| c.str_at(&["image"])).chain(references);
    all.filter(|image| !image.is_empty()).collect()
}

/// False for an update that adds no image: its pull policies are left alone.
fn brings_images(attributes: &Attributes, pod: &Value) -> bool {
    match attributes.old_object.as_deref() {
        Some(old) if attributes.operation == Operation::Update => {
            let had: HashSet<&str> = images(old).into_iter().collect();
            images(pod).iter().any(|image| !had.contains(*image))
        }
        _ => true,
    }
}

#[async_trait]
impl Admission for AlwaysPullImages {
    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is("", "pods")
    }

    async fn mutate(&self, attributes: &Attributes, pod: &mut Value) -> Result<()> {
        if !brings_images(attributes, pod) {
            return Ok(());
        }
        for list in ALL_CONTAINERS {
            for container in elements_mut(pod, list) {
                container.set(&["imagePullPolicy"], "Always");
            }
        }
        for volume in elements_mut(pod, "volumes").filter(|v| !v.get("image").is_null()) {
            volume.set(&["image", "pullPolicy"], "Always");
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes, pod: &Value) -> Result<()> {
        if !brings_images(attributes, pod) {
            return Ok(());
        }
        for list in ALL_CONTAINERS {
            for (i, container) in pod.at(&["spec", list]).items().iter().enumerate() {
                let policy = container.str_at(&["imagePullPolicy"]);
                // A plugin or webhook after this one may have changed the policy.
                if policy != "Always" {
                    let why = format!(
                        "spec.{list}[{i}].imagePullPolicy: Unsupported value: {policy:?}: supported values: \"Always\""
                    );
                    return Err(forbidden(attributes, pod, why));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, pod, request, update};
    use crate::json;

    #[tokio::test]
    async fn images_are_always_pulled_unless_an_update_adds_none() {
        let given = pod(json!({"containers": [{"image": "a", "imagePullPolicy": "Never"}],
            "volumes": [{"image": {"reference": "v"}}]}));
        let create = request(Operation::Create, "", "pods", "p");
        let got = ask(&AlwaysPullImages, &create, &given).await.unwrap();
        let container = &got.at(&["spec", "containers"]).items()[0];
        assert_eq!(container.str_at(&["imagePullPolicy"]), "Always");
        let volume = &got.at(&["spec", "volumes"]).items()[0];
        assert_eq!(volume.str_at(&["image", "pullPolicy"]), "Always");
        let same = update("", "pods", given.clone());
        assert_eq!(ask(&AlwaysPullImages, &same, &given).await.unwrap(), given);
        let refused = AlwaysPullImages.validate(&create, &given).await.unwrap_err();
        assert!(refused.message.ends_with("supported values: \"Always\""));
    }
}
