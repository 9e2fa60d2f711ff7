# An extension API server behind the gateway: its APIService's caBundle is ca.crt.
subject = /CN=backend
kind    = server
issuer  = ca
names   = DNS:localhost, DNS:sample.default.svc, IP:127.0.0.1, IP:::1
days    = 365
