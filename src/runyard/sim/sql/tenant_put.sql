-- A tenant that is known before its first webhook.
INSERT INTO tenants (tenant, installation_id) VALUES (%(tenant)s, %(installation_id)s);
