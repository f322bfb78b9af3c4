"""MQTT scalability on a virtual test bed (Wilcox, Kaleshi, Sooriyabandara 2014, sections II and III)."""
