# Shown to clients of the gateway.
subject = /CN=kube-apiserver
kind    = server
issuer  = ca
names   = DNS:localhost, DNS:kubernetes, DNS:kubernetes.default, DNS:kubernetes.default.svc, DNS:kubernetes.default.svc.cluster.local, IP:127.0.0.1, IP:::1, IP:10.0.0.1
days    = 365
