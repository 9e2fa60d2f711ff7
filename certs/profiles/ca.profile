# Verifies the gateway's serving certificate.
subject = /CN=dev-ca
kind    = ca
days    = 3650
