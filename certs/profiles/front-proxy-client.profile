# Shown by the gateway to the backends it speaks to for users.
subject = /CN=front-proxy-client
kind    = client
issuer  = front-proxy-ca
days    = 365
