//! Long lists in kinds other than pods.

use super::{Shape, shape};

const SERVICES: &str = "/api/v1/namespaces/evil/services";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/evil/networkpolicies";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/evil/ingresses";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/evil/endpointslices";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/evil/horizontalpodautoscalers";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/evil/resourceclaims";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/evil/deployments";

pub(super) fn shapes() -> Vec<Shape> {
    vec![
        shape(
            "a service of 30,000 ports",
            SERVICES,
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[%]}}"#,
            30_000,
            |i| format!(r#"{{"name":"p{i}","port":{}}}"#, i % 65_535 + 1),
        ),
        shape(
            "a service of one port 30,000 times",
            SERVICES,
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[%]}}"#,
            30_000,
            |_| r#"{"name":"p","port":1}"#.into(),
        ),
        shape(
            "a service of node ports",
            SERVICES,
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[%]}}"#,
            5_000,
            |i| format!(r#"{{"name":"p{i}","port":{}}}"#, i % 65_535 + 1),
        ),
        shape(
            "a service of 50,000 external addresses",
            SERVICES,
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":1}],"externalIPs":[%]}}"#,
            50_000,
            |i| format!(r#""10.{}.{}.{}""#, i / 65_536, i / 256 % 256, i % 256),
        ),
        shape(
            "a service of 50,000 source ranges",
            SERVICES,
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"type":"LoadBalancer","ports":[{"port":1}],"loadBalancerSourceRanges":[%]}}"#,
            50_000,
            |i| format!(r#""10.{}.{}.0/24""#, i / 256 % 256, i % 256),
        ),
        shape(
            "a network policy of 10,000 rules",
            POLICIES,
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"n"},"spec":{"podSelector":{},"ingress":[%]}}"#,
            10_000,
            |i| {
                format!(
                    r#"{{"ports":[{{"port":{}}}],"from":[{{"ipBlock":{{"cidr":"10.0.0.0/8","except":["10.{}.0.0/16"]}}}}]}}"#,
                    i % 65_535 + 1,
                    i % 256
                )
            },
        ),
        shape(
            "a network policy of one block with 50,000 exceptions",
            POLICIES,
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"n"},"spec":{"podSelector":{},"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":[%]}}]}]}}"#,
            50_000,
            |i| format!(r#""10.{}.{}.0/24""#, i / 256 % 256, i % 256),
        ),
        shape(
            "an ingress of 15,000 hosts",
            INGRESSES,
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"i"},"spec":{"rules":[%]}}"#,
            15_000,
            |i| {
                format!(
                    r#"{{"host":"h{i}.example","http":{{"paths":[{{"path":"/","pathType":"Prefix","backend":{{"service":{{"name":"s","port":{{"number":1}}}}}}}}]}}}}"#
                )
            },
        ),
        shape(
            "an ingress of 40,000 certificates",
            INGRESSES,
            r#"{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"i"},"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":1}}},"tls":[%]}}"#,
            30_000,
            |i| format!(r#"{{"hosts":["h{i}.example"],"secretName":"s{i}"}}"#),
        ),
        shape(
            "an endpoint slice of 20,000 ports",
            SLICES,
            r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"e"},"addressType":"IPv4","endpoints":[],"ports":[%]}"#,
            20_000,
            |i| format!(r#"{{"name":"p{i}","port":{}}}"#, i % 65_535 + 1),
        ),
        shape(
            "an endpoint slice of 20,000 endpoints",
            SLICES,
            r#"{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"e"},"addressType":"IPv4","endpoints":[%]}"#,
            20_000,
            |i| {
                format!(
                    r#"{{"addresses":["10.0.{}.{}"],"hints":{{"forZones":[{{"name":"z{i}"}}]}}}}"#,
                    i / 256 % 256,
                    i % 256
                )
            },
        ),
        shape(
            "endpoints of 10,000 subsets",
            "/api/v1/namespaces/evil/endpoints",
            r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"e"},"subsets":[%]}"#,
            10_000,
            |i| {
                format!(
                    r#"{{"addresses":[{{"ip":"10.0.{}.{}"}}],"ports":[{{"port":{}}}]}}"#,
                    i / 256 % 256,
                    i % 256,
                    i % 65_535 + 1
                )
            },
        ),
        shape(
            "endpoints of one subset with 20,000 addresses and ports",
            "/api/v1/namespaces/evil/endpoints",
            r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"e"},"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"notReadyAddresses":[{"ip":"10.0.0.2"}],"ports":[%]}]}"#,
            20_000,
            |i| format!(r#"{{"name":"p{i}","port":{}}}"#, i % 65_535 + 1),
        ),
        shape(
            "a quota of 40,000 resources",
            "/api/v1/namespaces/evil/resourcequotas",
            r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{%}}}"#,
            40_000,
            |i| format!(r#""requests.e.example/r{i}":"1000""#),
        ),
        shape(
            "a quota of 40,000 scopes",
            "/api/v1/namespaces/evil/resourcequotas",
            r#"{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"pods":"1"},"scopes":[%]}}"#,
            40_000,
            |i| format!(r#""s{i}""#),
        ),
        shape(
            "limits of 20,000 items",
            "/api/v1/namespaces/evil/limitranges",
            r#"{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"l"},"spec":{"limits":[%]}}"#,
            20_000,
            |i| format!(r#"{{"type":"Container","max":{{"e.example/r{i}":"1"}}}}"#),
        ),
        shape(
            "a scaler of 10,000 metrics",
            SCALERS,
            r#"{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"Deployment","name":"d"},"metrics":[%]}}"#,
            10_000,
            |i| {
                format!(
                    r#"{{"type":"Pods","pods":{{"metric":{{"name":"m{i}"}},"target":{{"type":"AverageValue","averageValue":"1"}}}}}}"#
                )
            },
        ),
        shape(
            "a claim of 10,000 requests",
            CLAIMS,
            r#"{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"r"},"spec":{"devices":{"requests":[%]}}}"#,
            10_000,
            |i| format!(r#"{{"name":"r{i}","exactly":{{"deviceClassName":"c"}}}}"#),
        ),
        shape(
            "a claim of 10,000 constraints",
            CLAIMS,
            r#"{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"r"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}],"constraints":[%]}}}"#,
            20_000,
            |i| format!(r#"{{"requests":["r"],"matchAttribute":"e.example/a{i}"}}"#),
        ),
        shape(
            "a deployment that selects by 20,000 expressions",
            DEPLOYMENTS,
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchExpressions":[%]},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
            20_000,
            |i| format!(r#"{{"key":"k{i}","operator":"In","values":["a","b"]}}"#),
        ),
        shape(
            "a deployment that selects by an expression of 100,000 values",
            DEPLOYMENTS,
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":[%]}]},"template":{"metadata":{"labels":{"a":"v1"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
            100_000,
            |i| format!(r#""v{i}""#),
        ),
        shape(
            "a stateful set of 5,000 claim templates",
            "/apis/apps/v1/namespaces/evil/statefulsets",
            r#"{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"s"},"spec":{"serviceName":"s","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}},"volumeClaimTemplates":[%]}}"#,
            5_000,
            |i| {
                format!(
                    r#"{{"metadata":{{"name":"v{i}"}},"spec":{{"accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1Gi"}}}}}}}}"#
                )
            },
        ),
        shape(
            "a job of 20,000 failure rules",
            "/apis/batch/v1/namespaces/evil/jobs",
            r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"podFailurePolicy":{"rules":[%]},"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#,
            20_000,
            |i| {
                format!(
                    r#"{{"action":"Ignore","onExitCodes":{{"operator":"In","values":[{}]}}}}"#,
                    i + 1
                )
            },
        ),
        shape(
            "a job with one failure rule of 200,000 codes",
            "/apis/batch/v1/namespaces/evil/jobs",
            r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{"podFailurePolicy":{"rules":[{"action":"Ignore","onExitCodes":{"operator":"In","values":[%]}}]},"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#,
            200_000,
            |i| format!("{}", i + 1),
        ),
        shape(
            "a disruption budget that selects by 20,000 expressions",
            "/apis/policy/v1/namespaces/evil/poddisruptionbudgets",
            r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"p"},"spec":{"minAvailable":1,"selector":{"matchExpressions":[%]}}}"#,
            20_000,
            |i| format!(r#"{{"key":"k{i}","operator":"NotIn","values":["a"]}}"#),
        ),
        shape(
            "a service account of 50,000 secrets",
            "/api/v1/namespaces/evil/serviceaccounts",
            r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a"},"secrets":[%]}"#,
            50_000,
            |i| format!(r#"{{"name":"s{i}"}}"#),
        ),
        shape(
            "a secret of 40,000 keys",
            "/api/v1/namespaces/evil/secrets",
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{%}}"#,
            40_000,
            |i| format!(r#""k{i}":"aaaa""#),
        ),
    ]
}
